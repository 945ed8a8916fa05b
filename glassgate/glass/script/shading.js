// The text is shaded by a gate or state of a unit, by contribution, by relevance, or by probability.
const SHADES = { "?right": say("shade.right"), "?contributions": say("shade.contributions"), "?relevance": say("shade.relevance") };

// Returns the function that shades a run's text for its cursor. `stepSpans` are the elements of the steps.
const shading = (data, reading, now, stepSpans, byDataId) => {
  const { steps, value, answerAt } = reading;
  const shaded = new Map([...stepSpans].map(([step, span]) => [step, span.className.match(/\b[png]\d+\b/)[0]]));
  let painted = "";

  // Returns a function from a step to its shade. `row` has a number for each step of the passage at the cursor.
  const shadeOfRow = (row) => {
    const peak = row ? Math.max(1e-30, ...row.numbers.map(Math.abs)) : 1;
    return (step) => {
      const index = row ? step - row.start : -1;
      return index >= 0 && index < (row ? row.numbers.length : 0) ? shadeOf(row.numbers[index] / peak) : "p0";
    };
  };
  const shadeKinds = {
    "": () => ({ shadeAt: () => "p0", low: "", high: "", words: say("shade.none") }),
    "?contributions": () => ({ shadeAt: shadeOfRow(reading.contributions()), low: say("words.against"), high: say("words.for"), words: say("shade.contributions_at_cursor") }),
    "?relevance": () => {
      const row = reading.relevance();
      const words = row ? say("shade.relevance_to", { score: scoreOf(row.name, row) }) : say("shade.no_relevance");
      const at = row && row.step !== null && row.step + row.start !== now.step ? say("shade.answer_at", { step: row.step + 1 }) : "";
      return { shadeAt: shadeOfRow(row), low: say("words.against"), high: say("words.for"), words, why: row ? say("shade.sum", { at, sum: sumOfParts(row) }) : "" };
    },
    "?right": () => ({
      shadeAt: (step) => {
        const answer = answerAt(step);
        const p = answer && (answer.target ? answer.target[1] : answer.best[0][1]);
        return p === null || p === undefined ? "p0" : shadeOf(p, "gate");
      },
      low: "0", high: percent(1), kind: "gate", words: say("shade.right_or_answer"),
    }),
  };
  const byValue = (part, name) => {
    const numbers = steps.map((_, step) => value(part, name, step, now.unit) ?? 0);
    const gate = part.kinds[name] === "gate";
    const sorted = numbers.map(Math.abs).sort((a, b) => a - b);
    const peak = gate ? 1 : sorted[Math.floor(0.98 * (sorted.length - 1))] || 1;
    // The only unit of a layer follows every mark most closely.
    const follows = (part.units === 1 ? [] : data.follows).filter(([, label, unit]) => label === part.label && unit === now.unit).map(([mark, , , , r]) => say("text.mark", { mark, opposite: r < 0 ? say("words.opposite") : "" }));
    const why = follows.length ? say("text.follows", { marks: listedWithAnd(follows) }) : "";
    const [low, high] = gate ? ["0", "1"] : [`−${peak.toPrecision(2)}`, peak.toPrecision(2)];
    const shadeAt = (step) => shadeOf(numbers[step] / peak, gate ? "gate" : "");
    return { shadeAt, low, high, kind: gate ? "gate" : "signed", words: say("text.value", { name, unit: now.unit, direction: part.label }), why };
  };

  return () => {
    const byAnswer = now.shade === "?contributions" || now.shade === "?relevance";
    const key = [now.shade, now.part, now.unit, byAnswer ? [now.step, now.answer] : ""].join();
    if (key === painted) return;
    painted = key;
    const { shadeAt, low, high, kind = "signed", words, why = "" } = shadeKinds[now.shade]?.() ?? byValue(data.parts[now.part], now.shade);
    byDataId("shading").textContent = words;
    // The legend about an answer changes while the pointer moves. It always gets two lines, so that the text does not move.
    byDataId("shading").closest(".legend").classList.toggle("tall", byAnswer);
    byDataId("why").textContent = why;
    byDataId("scale").className = `scale ${kind}`;
    byDataId("scale").firstChild.textContent = low;
    byDataId("scale").lastChild.textContent = high;
    for (const [step, span] of stepSpans) {
      const [was, is] = [shaded.get(step), shadeAt(step)];
      if (was === is) continue;
      span.classList.replace(was, is);
      shaded.set(step, is);
    }
  };
};
