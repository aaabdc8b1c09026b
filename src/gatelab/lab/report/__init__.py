"""Reports: findings in, one HTML file and tables out."""

from gatelab.lab.report.write import write_report

__all__ = ["write_report"]
