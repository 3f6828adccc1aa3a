"""The model of docs/MODEL.md, written a second time and solved by another solver.

Reads fleets, one JSON object a line, and writes the cost of each one's optimal
plan, one JSON object a line. It shares nothing with the Go program but the words
of MODEL.md, and states the program differently where it can: queueing and
refusal as the upper envelope of lines, churn as an absolute value, convexity by a
lower hull.
"""

import bisect
import functools
import json
import os
import sys

import highspy
import numpy as np

FRACTIONS = [0.02, 0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.55, 0.75, 1]  # of demand, cumulative
SEGMENTS = 16


def curve(points, at):
    if not points:
        return 0.0
    if len(points) == 1 or at <= points[0][0]:
        return points[0][1]
    i = min(bisect.bisect_left(points, at, key=lambda p: p[0]), len(points) - 1)
    (u, s), (v, r) = points[i - 1], points[i]
    return s + (r - s) / (v - u) * (at - u)


class Pool:
    def __init__(self, raw, headroom):
        self.raw = raw
        self.rps = raw["capacityRps"]
        self.replicas = (
            sum(1 for r in raw["engines"] if r != "unready")
            * (raw["health"] or 1)
            * (raw["factor"] or 1)
        )
        self.least, self.price = raw["minRps"], raw["price"]
        self.usable = 1 - headroom
        if raw["maxRps"] and self.replicas:
            self.usable = min(self.usable, raw["maxRps"] / self.rps / self.replicas)

    def prefill(self, prompt, cached):
        """Where the profile says what was cached, what is computed counts: a token at least."""
        return max(prompt - cached, min(prompt, 1)) if self.raw["cacheStated"] else prompt

    def tokens(self, prompt, output, cached):
        return self.prefill(prompt, cached) + self.raw["outputTokenCost"] * output

    def work(self, tokens):
        own = self.tokens(*self.raw["reference"])
        return (self.tokens(*tokens) if any(tokens) else own) / own / self.rps

    def wait(self, u):
        """Seconds of queueing per engine-second of work."""
        ttft = curve(self.raw["ttft"], u) - curve(self.raw["ttft"], 0)
        tbt = curve(self.raw["tbt"], u) - curve(self.raw["tbt"], 0)
        return self.rps * max(0, ttft + self.raw["reference"][1] * tbt)

    @functools.cached_property
    def lines(self):
        """Slope and height at 0 of the lines whose upper envelope is one replica's waiting."""
        inner = {u for c in ("ttft", "tbt") for u, _ in self.raw[c] if 0 < u < self.usable}
        xs = sorted(inner | {0.0, self.usable})
        while len(xs) <= SEGMENTS:
            gaps = [
                abs(self.wait(b) - self.wait(a)) * (b - a) / 4 for a, b in zip(xs, xs[1:])
            ]
            if max(gaps) <= 1e-12:
                break
            at = next(i for i, g in enumerate(gaps) if g >= max(gaps) * (1 - 1e-9))
            xs.insert(at + 1, (xs[at] + xs[at + 1]) / 2)
        hull = []
        for x in xs:
            y = x * self.wait(x)
            while len(hull) > 1 and turns_down(hull[-2], hull[-1], (x, y)):
                hull.pop()
            hull.append((x, y))
        out = []
        for (a, fa), (b, fb) in zip(hull, hull[1:]):
            slope = (fb - fa) / (b - a)
            out.append((slope, fa - slope * a))
        return out


def turns_down(a, b, c):
    return (b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0])


def eligible(cls, pool):
    has = all(m in pool["models"] for m in cls["models"])
    return has and (not cls["regions"] or pool["region"] in cls["regions"])


class Fleet:
    def __init__(self, raw):
        self.raw = raw
        self.pools = [Pool(p, raw["headroom"]) for p in raw["pools"]]
        self.classes = raw["classes"]
        for c in self.classes:
            self.place(c)
        self.streams = [s for s in raw["streams"] if self.classes[s["class"]]["at"]]
        for s in self.streams:
            s["move"] = self.moves(s)

    def place(self, c):
        every = [i for i, p in enumerate(self.pools) if eligible(c, p.raw)]
        known = [curve(self.pools[i].raw["tbt"], 0) for i in every if self.pools[i].raw["tbt"]]
        c["may"] = every
        c["at"] = [i for i in every if self.pools[i].replicas > 0]
        c["work"] = {i: self.pools[i].work(c["tokens"]) for i in c["at"]}
        c["base"] = {i: self.base(c, self.pools[i].raw, known) for i in c["at"]}
        if c["at"]:
            c["size"] = np.mean([c["work"][i] * self.pools[i].rps for i in c["at"]])

    def moves(self, s):
        """Seconds that a request must gain to be moved to each pool."""
        at, had = self.classes[s["class"]]["at"], s["previous"]
        if not had:
            return dict.fromkeys(at, 0)
        age = s["settled"] + self.raw["elapsed"]
        left = 2 ** (-age / self.raw["halving"]) if self.raw["halving"] else 1
        home = max((n for n, share in zip(s["noise"], had) if share > 0), default=0)
        cached = self.classes[s["class"]]["tokens"][2]
        out = {}
        for i in at:
            pool = self.pools[i].raw
            prompt, _, held = pool["reference"]
            refill = cached / self.pools[i].prefill(prompt, held) * curve(pool["ttft"], 0)
            out[i] = 3 * (home**2 + s["noise"][i] ** 2) ** 0.5 + left * (2 * self.raw["churn"] + refill)
        return out

    def cost(self, s, i):
        return s["network"][i] + self.classes[s["class"]]["base"][i] + self.pools[i].price

    @staticmethod
    def base(c, pool, known):
        seconds = c["weights"][0] * curve(pool["ttft"], 0)
        if pool["tbt"]:
            output = c["tokens"][1] if any(c["tokens"]) else pool["reference"][1]
            seconds += c["weights"][1] * output * (curve(pool["tbt"], 0) - min(known))
        return seconds

    def prices(self):
        """The price of refusing the first request, by class."""
        live = [c for c in self.classes if c["at"]]
        disparity = 1
        for i, pool in enumerate(self.pools):
            seen = [c["work"][i] / c["size"] for c in live if i in c["at"]]
            if seen:
                disparity = max(disparity, max(seen) / min(seen))
        worst = 1e-3
        for s in self.streams:
            c = self.classes[s["class"]]
            for i in c["at"]:
                steepest = max(0, self.pools[i].lines[-1][0])
                seconds = self.cost(s, i) + c["work"][i] * steepest + s["move"][i]
                worst = max(worst, seconds / c["size"])
        self.limit_price, self.lightest = 5 * worst, min(c["size"] for c in live)
        first = 10 * disparity**2 * worst
        ratio = 4 * disparity**2
        bands = sorted({c["priority"] for c in live})
        if len(bands) > 1:
            room = 1e7 / (2 * first * max(c["size"] for c in live))
            ratio = max(2, min(ratio, room ** (1 / (len(bands) - 1))))
        return {
            id(c): c["size"] * first * ratio ** bands.index(c["priority"]) for c in live
        }


class Program:
    def __init__(self):
        self.h = highspy.Highs()
        self.h.setOptionValue("output_flag", False)
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self.h.setOptionValue(name, 1e-9)

    def var(self, cost, low=0.0, high=highspy.kHighsInf):
        self.h.addVar(low, high)
        column = self.h.getNumCol() - 1
        self.h.changeColCost(column, cost)
        return column

    def row(self, low, high, terms):
        columns, values = zip(*terms)
        self.h.addRow(low, high, len(terms), np.array(columns), np.array(values, dtype=float))

    def above(self, z, x, slope, height):
        """z >= slope x + height."""
        self.row(height, highspy.kHighsInf, [(z, 1), *((c, -slope * w) for c, w in x)])


def limit(fleet, p, flows):
    """What operators limit, but for the most that a pool may have; it is paid for."""
    inf, price = highspy.kHighsInf, fleet.limit_price
    for i, pool in enumerate(fleet.pools):
        own = [(x, fleet.classes[s["class"]]["work"][i] * pool.rps) for s, j, x in flows if j == i]
        if pool.least and pool.replicas:
            p.row(pool.least, inf, [*own, (p.var(price), 1)])
    price *= fleet.lightest
    for l in fleet.raw["limits"]:
        mine = [
            (s, i, x)
            for s, i, x in flows
            if s["frontEnd"] == l["frontEnd"]
            and l["class"] in (None, s["class"])
            and l["pool"] in fleet.classes[s["class"]]["may"]
        ]
        if not mine or fleet.pools[l["pool"]].replicas == 0:
            continue
        there = lambda share: [(x, (i == l["pool"]) - share) for _, i, x in mine]
        p.row(-inf, 0, [*there(l["max"]), (p.var(price), -1)])
        p.row(0, inf, [*there(l["min"]), (p.var(price), 1)])


def solve(raw):
    fleet, p = Fleet(raw), Program()
    if not any(s["rps"] for s in fleet.streams):
        return {"cost": 0, "shedCost": 0}
    prices, load, payments, everything = fleet.prices(), {}, [], []
    for s in fleet.streams:
        c, demand = fleet.classes[s["class"]], s["rps"]
        if demand == 0:
            continue
        flows = []
        for i in c["at"]:
            x = p.var(fleet.cost(s, i))
            flows.append((x, 1))
            everything.append((s, i, x))
            load.setdefault(i, []).append((x, c["work"][i]))
            if s["previous"]:
                had = s["previous"][i] * demand
                moved = p.var(s["move"][i])
                p.row(-had, highspy.kHighsInf, [(moved, 1), (x, -1)])
        shed, paid = p.var(0, 0, demand), p.var(1)
        height, start = 0.0, 0.0
        for j, end in enumerate(FRACTIONS):
            price = prices[id(c)] * (1 + 0.1 * j)
            p.above(paid, [(shed, 1)], price, height - price * start * demand)
            height += price * (end - start) * demand
            start = end
        payments.append(paid)
        p.row(demand, demand, flows + [(shed, 1)])
    for i, terms in load.items():
        pool, z = fleet.pools[i], p.var(1, -highspy.kHighsInf)
        p.row(-highspy.kHighsInf, pool.replicas * pool.usable, terms)
        for slope, height in pool.lines:
            p.above(z, terms, slope, height * pool.replicas)
    limit(fleet, p, everything)
    p.h.run()
    if p.h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(p.h.modelStatusToString(p.h.getModelStatus()))
    x = p.h.getSolution().col_value
    shed_cost = sum(x[paid] for paid in payments)
    total = p.h.getInfo().objective_function_value
    return {"cost": total - shed_cost, "shedCost": shed_cost}


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the solver greets on standard output
for line in sys.stdin:
    print(json.dumps(solve(json.loads(line))), file=answers, flush=True)
