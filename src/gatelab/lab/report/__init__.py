"""Reports: facts in, one HTML file and tables out."""

from gatelab.lab.report.html import page
from gatelab.lab.report.tables import as_csv, as_latex, as_markdown
from gatelab.lab.report.write import findings_of, write_report

__all__ = ["as_csv", "as_latex", "as_markdown", "findings_of", "page", "write_report"]
