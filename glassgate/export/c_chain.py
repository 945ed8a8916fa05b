"""The C functions `init`, `reset`, `step` and `run` of one chain of stages, and the struct of its states."""

import re
from collections.abc import Iterator, Sequence

from glassgate.export.c_stages import LevelStage, Stage


class Chain:
    """Generates the declarations and the functions of consecutive stages.

    Args:
        name: the prefix of the function names.
        stages: the stages in order.
        real: "float" or "double".
        weights: the name of the weights struct if the weights are read from a file; otherwise empty.
        max_steps: the length of the buffers between the stages of a bidirectional network.
    """

    def __init__(self, name: str, stages: Sequence[Stage], real: str, weights: str, max_steps: int) -> None:
        self.name, self.stages, self.real, self.weights, self.max_steps = name, stages, real, weights, max_steps
        self.bidirectional = any(stage.bidirectional for stage in stages)
        self.needs_buffers = self.bidirectional and len(stages) > 1
        self.input, self.output = stages[0].input, stages[-1].output
        self.arrays = [array for stage in stages for array in stage.arrays]

    @property
    def header(self) -> Iterator[str]:
        """The lines of the header."""
        name, real = self.name, self.real
        states = [f"    {real} {state}[{size}];" for stage in self.stages for state, size in stage.states.items()]
        yield f"/* {name}: {self.input} inputs and {self.output} outputs per step. */"
        yield f"enum {{ {name}_input_size = {self.input}, {name}_output_size = {self.output} }};"
        if self.needs_buffers:
            widest = max(stage.output for stage in self.stages[:-1])
            yield f"enum {{ {name}_max_steps = {self.max_steps} }};"
            states.append(f"    {real} work[2][{self.max_steps * widest}];")
        if self.weights:
            states.append(f"    const {self.weights} *weights;")
        yield ""
        yield "typedef struct {"
        yield from states or ["    char nothing;"]
        yield f"}} {name}_state;"
        yield ""
        yield "/* Initialises a state" + (" with weights, which must stay in memory. */" if self.weights else ". */")
        yield f"void {name}_init({name}_state *s{self._argument});"
        yield "/* Sets all states to the initial states. */"
        yield f"void {name}_reset({name}_state *s);"
        if not self.bidirectional:
            yield "/* Computes one step. */"
            yield f"void {name}_step({name}_state *s, const {real} *x, {real} *y);"
            yield "/* Computes several steps, from (steps, input_size) to (steps, output_size). Returns 0. */"
        else:
            limit = f" Returns -1 if steps is more than {name}_max_steps." if self.needs_buffers else ""
            yield "/* Computes several steps, from (steps, input_size) to (steps, output_size). The forward direction"
            yield "   continues from the states of the previous call. The reverse direction starts from its initial"
            yield f"   states at the last step. Returns 0.{limit} */"
        yield f"int {name}_run({name}_state *s, const {real} *x, {real} *y, size_t steps);"

    @property
    def _argument(self) -> str:
        return f", const {self.weights} *w" if self.weights else ""

    @property
    def functions(self) -> Iterator[str]:
        """The functions of the chain. They call the functions of the stages."""
        name, real = self.name, self.real
        resets = []
        for stage in self.stages:
            if isinstance(stage, LevelStage):
                for direction in stage.directions:
                    resets.append(f"    reset_{direction.name}(s);\n")
                    fields = stage.fields[direction].values()
                    body = "".join(f"    {self._initialise(stage, field)}\n" for field in fields)
                    yield f"static void reset_{direction.name}({name}_state *s) {{\n{body}}}\n"
        store_weights = "    s->weights = w;\n" if self.weights else ""
        yield f"void {name}_reset({name}_state *s) {{\n{''.join(resets) or '    (void)s;' + chr(10)}}}\n"
        yield f"void {name}_init({name}_state *s{self._argument}) {{\n{store_weights}    {name}_reset(s);\n}}\n"
        if self.bidirectional:
            yield self._run_bidirectional()
        else:
            yield self._step()
            yield (
                f"int {name}_run({name}_state *s, const {real} *x, {real} *y, size_t steps) {{\n"
                f"    for (size_t t = 0; t < steps; t++) {name}_step(s, x + t * {self.input}, y + t * {self.output});\n"
                "    return 0;\n}\n"
            )

    def _initialise(self, stage: LevelStage, state: str) -> str:
        """The statement that sets a state to its initial value."""
        source = stage.initial.get(state)
        target = f"s->{state}"
        if source:
            return self._with_weights(f"memcpy({target}, {source}, sizeof {target});")
        return f"memset({target}, 0, sizeof {target});"

    def _with_weights(self, line: str) -> str:
        """The line. If the weights are in a file, it is changed to read them through the pointer in the state."""
        if self.weights:
            for array in self.arrays:
                line = re.sub(rf"\b{array.name}\b", f"s->weights->{array.name}", line)
        return line

    def _step(self) -> str:
        lines, x = [], "x"
        if not any(stage.states for stage in self.stages) and not (self.weights and self.arrays):
            lines.append("(void)s;")
        for k, stage in enumerate(self.stages):
            last = k == len(self.stages) - 1
            if not last:
                lines.append(f"{self.real} out{k}[{stage.output}];")
            y = "y" if last else f"out{k}"
            lines += map(self._with_weights, stage.step(x, y))
            x = y
        body = "".join(f"    {line}\n" for line in lines)
        return f"void {self.name}_step({self.name}_state *s, const {self.real} *x, {self.real} *y) {{\n{body}}}\n"

    def _run_bidirectional(self) -> str:
        lines, x = [], "x"
        if self.needs_buffers:
            lines.append(f"if (steps > {self.name}_max_steps) return -1;")
        for k, stage in enumerate(self.stages):
            y = "y" if k == len(self.stages) - 1 else f"s->work[{k % 2}]"
            if isinstance(stage, LevelStage):
                lines += map(self._with_weights, stage.run(x, y))
            else:
                lines.append("for (size_t t = 0; t < steps; t++) {")
                step = stage.step(f"{x} + t * {stage.input}", f"{y} + t * {stage.output}")
                lines += [f"    {line}" for line in map(self._with_weights, step)]
                lines.append("}")
            x = y
        lines.append("return 0;")
        body = "".join(f"    {line}\n" for line in lines)
        parameters = f"{self.name}_state *s, const {self.real} *x, {self.real} *y, size_t steps"
        return f"int {self.name}_run({parameters}) {{\n{body}}}\n"
