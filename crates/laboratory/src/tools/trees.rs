//! `trees`: times of programs that walk a tree, with cold caches and with warm ones, and of those
//! that change every file of it, once.

use super::Plan;
use super::children;
use super::planted::{self, Planted, Tool};
use crate::error::Result;

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
    once(plan, tool, &format!("{}, warm", tool.case))
}

fn once(plan: &Plan<'_>, tool: &Tool, case: &str) -> Result<()> {
    let times = children::run(&mut tool.command(), tool.output)?;
    children::print(["trees", case, tool.by.name()], plan.files, times, &[])
}
