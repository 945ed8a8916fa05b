"""The C program of a classification or regression run."""

from typing import Any

from torch import nn

from glassgate.tasks.c.program import Parts, constants, numbers, strings, units
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.networks.maps import KernelScores, StepScores, TokenScores


def export(task: LabelledTask[Any, Any]) -> Parts:
    """Return the program, which prints one answer per sequence."""
    network, scales = task.network, task.series_scale
    modules: dict[str, nn.Module] = {"attention": network.attention} if task.pooling == "attention" else {}
    modules |= {"encoder": network.encoder, "head": network.head}
    if network.embedding is not None:
        modules["words"] = network.embedding
    if task.predicts_numbers:
        means, deviations = task.fitted["numbers"]
        tables = [numbers("number_means", means), numbers("number_deviations", deviations)]
    else:
        tables = [constants(LABELLED=1), strings("label_names", task.vocabularies["labels"].symbols)]
    tables.append(constants(**{f"POOL_{task.pooling.upper()}": 1, "DIRECTIONS": 1 + task.options.bidirectional}))
    match network.linear:
        case TokenScores() as linear:
            modules["scores"] = nn.Embedding.from_pretrained(linear.table())
            tables += [numbers("rarity", linear.rarity), constants(LINEAR=1)]
        case KernelScores() as linear:
            count, features, _ = linear.support.shape
            tables += [constants(SUPPORT=count, FEATURES=features, DIFFERENCES=linear.differences)]
            tables += [numbers("kernel_rate", [linear.rate]), numbers("support", linear.support)]
            tables += [numbers("coefficients", linear.coefficients)]
        case StepScores() as linear:
            weight, bias = (values[:-1] for values in (linear.weight, linear.bias))
            tables += [constants(STEPS=len(weight)), numbers("step_weights", weight)]
            tables += [numbers("step_biases", bias)]
    if network.embedding is not None:
        tables += units(task)
        reads = "the indices of the tokens of a text"
    elif scales is not None:
        tables += [constants(CHANNELS=len(scales[0])), numbers("means", scales[0]), numbers("deviations", scales[1])]
        reads = "the values of a series: all channels of a step, then the next step"
    prints = "the numbers" if task.predicts_numbers else "the label and its probability"
    return Parts(modules, "answer", tables, reads, prints)
