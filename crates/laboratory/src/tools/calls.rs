//! `calls`: the table of 2006. System calls of programs that walk a tree, each with cold caches,
//! counted and timed by strace. Times are those under strace, which makes every call slower.

use super::Plan;
use super::children;
use super::planted::{self, Planted, Tool};
use super::strace::Sums;
use crate::error::{LabError, Result};
use crate::process;
use serde_json::json;
use std::ffi::OsStr;
use std::process::Command;

/// Runs the workload.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    if !process::is_installed("strace") {
        return Err(LabError::failed("program", "strace", "is missing: apt-get install strace"));
    }
    let planted = Planted::new(plan)?;
    let mut tools = planted::usual(&planted, plan.scratch, "--color -lR");
    if plan.own {
        tools.extend(planted::own(&planted, plan.shoal));
    }
    planted::measure_each("calls", plan, &planted, tools, measure)
}

fn measure(plan: &Plan<'_>, tool: &Tool) -> Result<()> {
    if tool.needs_first {
        children::run(&mut tool.command(), tool.output)?;
    }
    children::drop_caches([OsStr::new("strace"), &tool.program])?;
    let table = plan.scratch.join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-w", "-U", "calls,total-time,name", "-o"]).arg(&table);
    strace.arg("--").arg(&tool.program).args(&tool.args);
    let times = children::run(&mut strace, tool.output)?;
    let text = std::fs::read_to_string(&table)
        .map_err(|e| LabError::failed("reading", table.display(), e))?;
    let sums = Sums::parse(&text)?;
    let own = [
        ("calls", json!(sums.calls)),
        ("calls_seconds", json!(sums.seconds)),
        ("single_calls", json!(sums.single_calls)),
        ("single_percent", json!(sums.single_percent())),
        ("single_percent_unwaited", json!(sums.single_percent_unwaited())),
        ("single_calls_per_file", json!(sums.single_calls as f64 / plan.files as f64)),
    ];
    children::print(["calls", tool.case, tool.by.name()], plan.files, times, &own)
}
