//! A report as one page of HTML that needs no other file.

use super::colour;
use super::page::{Block, Table, Text};
use super::text::html as escape;

const STYLE: &str = "
*{box-sizing:border-box}
body{margin:0;background:var(--b);color:var(--t);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}
main{max-width:71rem;margin:0 auto;padding:1rem 1rem 4rem;overflow-wrap:break-word}
h1{font-size:1.9rem;line-height:1.2;margin:1.5rem 0 1rem}
h2{font-size:1.45rem;margin:3.5rem 0 .5rem;padding-top:.75rem;border-top:2px solid var(--g)}
h3{font-size:1.15rem;margin:2.5rem 0 .5rem}
p{margin:.5rem 0}
a{color:var(--link)}
b{font-weight:600}
small,.note,figcaption{font-size:.84rem;color:var(--m)}
code,pre{font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;
font-size:.85rem}
pre{overflow-x:auto;background:var(--shade);padding:.6rem .8rem;border-radius:4px;margin:.4rem 0}
code{background:var(--shade);padding:.1rem .3rem;border-radius:3px}
pre code{padding:0;background:none}
summary{cursor:pointer;color:var(--m);font-size:.9rem}
p,pre,figure{max-width:54rem}
figure{margin:1.5rem 0 .75rem}
.box{overflow-x:auto;max-width:100%}
.box:focus-visible,a:focus-visible,summary:focus-visible{outline:2px solid var(--link)}
figure svg{display:block;width:100%;min-width:640px;height:auto}
table{border-collapse:separate;border-spacing:0;font-size:.87rem;margin:.5rem 0;
font-variant-numeric:tabular-nums}
th,td{text-align:right;vertical-align:top;padding:.3rem .5rem;border-bottom:1px solid var(--g);
line-height:1.35}
th{font-weight:600;vertical-align:bottom}
th:first-child{text-align:left;position:sticky;left:0;background:var(--b);min-width:8.5rem}
.wide th:first-child{min-width:11rem}
td{white-space:nowrap}
tbody th{vertical-align:top;font-weight:400}
td small,th small{display:block;font-size:.79rem}
.contents{columns:2 17rem;padding:0;list-style:none;margin:.5rem 0}
.contents li{break-inside:avoid}
.contents .l2{font-weight:600;margin-top:.5rem;break-after:avoid}
.contents .l3{padding-left:1rem}
:root{--shade:#f3f4f6;--link:#0b5cad}
@media screen and (prefers-color-scheme:dark){:root{--shade:#22262c;--link:#79b8ff}}
@media print{main{max-width:none;padding:0}figure,tr,.contents li{break-inside:avoid}
figure svg{min-width:0}h2,h3{break-after:avoid}.box{overflow:visible}table{font-size:.7rem}
th,td{padding:.2rem .3rem}a{color:inherit;text-decoration:none}th:first-child{position:static}}
";

/// Returns the page.
pub(super) fn page(blocks: &[Block]) -> String {
    let title = blocks.iter().find_map(|block| match block {
        Block::Title(title) => Some(title.as_str()),
        _ => None,
    });
    let body: String = blocks.iter().map(block).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}{STYLE}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title.unwrap_or("Report")),
        colour::style_page(),
    )
}

fn block(block: &Block) -> String {
    match block {
        Block::Title(title) => format!("<h1>{}</h1>\n", escape(title)),
        Block::Section(level, anchor, title) => {
            format!("<h{level} id=\"{}\">{}</h{level}>\n", escape(anchor), escape(title))
        }
        Block::Text(label, text) => format!("<p>{}{}</p>\n", named(label), escape(text)),
        Block::Command(label, command) => {
            format!("<p>{}<code>{}</code></p>\n", named(label), escape(command))
        }
        Block::Commands(summary, all) => format!(
            "<details><summary>{}</summary>\n<pre tabindex=\"0\"><code>{}</code></pre>\n\
             </details>\n",
            escape(summary),
            escape(&all.join("\n"))
        ),
        Block::Figure(_, drawing, caption) => format!(
            "<figure>\n<div class=\"box\" tabindex=\"0\" role=\"group\" aria-label=\"Figure\">\n{}\
             </div>\n<figcaption>{}</figcaption>\n</figure>\n",
            drawing.within(),
            escape(caption)
        ),
        Block::Table(table) => self::table(table),
        Block::Note(note) => format!("<p class=\"note\">{}</p>\n", escape(note)),
        Block::Contents(entries) => {
            let entry = |(level, anchor, title): &(u8, String, String)| {
                let (anchor, title) = (escape(anchor), escape(title));
                format!("<li class=\"l{level}\"><a href=\"#{anchor}\">{title}</a></li>\n")
            };
            let entries: String = entries.iter().map(entry).collect();
            format!(
                "<nav aria-label=\"Contents\">\n<ul class=\"contents\">\n{entries}</ul>\n</nav>\n"
            )
        }
    }
}

fn named(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("<b>{}:</b> ", escape(label)) }
}

fn table(table: &Table) -> String {
    let head: String =
        table.head.iter().map(|it| format!("<th scope=\"col\">{}</th>", escape(it))).collect();
    let row = |row: &Vec<Text>| {
        let cells = row.iter().enumerate().map(|(at, it)| match at {
            0 => format!("<th scope=\"row\">{}</th>", cell(it)),
            _ => format!("<td>{}</td>", cell(it)),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(row).collect();
    let has_long = table.rows.iter().any(|row| row.first().is_some_and(|it| !it.small.is_empty()));
    let wide = if has_long { " wide" } else { "" };
    format!(
        "<div class=\"box{wide}\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\n\
         <table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

fn cell(text: &Text) -> String {
    let main = escape(&text.main);
    let main = match &text.link {
        Some(link) => format!("<a href=\"{}\">{main}</a>", escape(link)),
        None => main,
    };
    let small: String =
        text.small.iter().map(|it| format!("<small>{}</small>", escape(it))).collect();
    main + &small
}
