import webbrowser

from typer.testing import CliRunner

from gatelab.cli import app

runner = CliRunner()


def test_the_page_is_written(tmp_path):
    page = tmp_path / "page.html"
    result = runner.invoke(app, ["playground", "-o", str(page)])
    assert result.exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_is_opened_or_the_remedy_told(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert runner.invoke(app, ["playground"]).exit_code == 0
    assert opened[0].startswith("file://")
    assert opened[0].endswith("playground.html")
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    result = runner.invoke(app, ["playground"])
    assert result.exit_code == 1
    assert "playground -o" in result.output
