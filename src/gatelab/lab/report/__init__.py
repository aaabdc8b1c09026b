"""Reports: findings in, one HTML file and tables out."""

from gatelab.lab.report.html import page
from gatelab.lab.report.write import findings_of, write_report

__all__ = ["findings_of", "page", "write_report"]
