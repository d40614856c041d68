//! `trees`: times of programs that walk a tree, with cold caches and with warm ones, and of those
//! that change every file of it, once. A program with warm caches is started again and again until
//! that has taken long enough to be timed; its time is the mean.

use super::Plan;
use super::children::{self, Times};
use super::planted::{self, Planted, Tool};
use crate::error::Result;
use serde_json::json;

/// Seconds that runs of a program with warm caches take together, unless there are too many.
const ENOUGH: f64 = 0.15;
/// Most runs of it.
const RUNS_MAX: u32 = 20;

/// Runs the workload.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    let planted = Planted::new(plan)?;
    let mut tools = planted::usual(&planted, plan.scratch, "-lR");
    tools.extend(planted::parallel(&planted));
    if plan.own {
        tools.extend(planted::own(&planted, plan.shoal));
        tools.extend(planted::own_too(&planted, plan.shoal));
    }
    planted::measure_each("trees", plan, &planted, tools, measure)
}

fn measure(plan: &Plan<'_>, tool: &Tool) -> Result<()> {
    if tool.changes {
        return once(plan, tool, tool.case);
    }
    if tool.needs_first {
        children::run(&mut tool.command(), tool.output)?;
    }
    children::drop_caches([&*tool.program])?;
    once(plan, tool, &format!("{}, cold", tool.case))?;
    let mut sum = Times { seconds: 0.0, cpu_seconds: 0.0 };
    let mut runs = 0;
    while runs < RUNS_MAX && sum.seconds < ENOUGH {
        let times = children::run(&mut tool.command(), tool.output)?;
        sum.seconds += times.seconds;
        sum.cpu_seconds += times.cpu_seconds;
        runs += 1;
    }
    let count = f64::from(runs);
    let mean = Times { seconds: sum.seconds / count, cpu_seconds: sum.cpu_seconds / count };
    let case = format!("{}, warm", tool.case);
    let own = [("runs", json!(runs))];
    children::print(["trees", &case, tool.by.name()], plan.files, mean, &own)
}

fn once(plan: &Plan<'_>, tool: &Tool, case: &str) -> Result<()> {
    let times = children::run(&mut tool.command(), tool.output)?;
    children::print(["trees", case, tool.by.name()], plan.files, times, &[])
}
