import webbrowser

from typer.testing import CliRunner

from gatelab.cli import app
from gatelab.errors import InputError

runner = CliRunner()


def test_the_page_is_written(tmp_path):
    page = tmp_path / "page.html"
    result = runner.invoke(app, ["playground", "-o", str(page)])
    assert result.exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_file_that_exists_is_kept_unless_forced(tmp_path):
    mine, link = tmp_path / "mine.txt", tmp_path / "link.html"
    mine.write_text("keep")
    link.symlink_to(mine)
    for page in (mine, link):
        result = runner.invoke(app, ["playground", "-o", str(page)])
        assert isinstance(result.exception, InputError)
        assert "--force" in str(result.exception)
    assert runner.invoke(app, ["playground", "-o", str(link), "--force"]).exit_code == 0
    assert mine.read_text() == "keep"  # the link is replaced, not followed
    assert not link.is_symlink()


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
