"""What all tests share: no test may be skipped in the full suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "light: also runs with old versions of torch")
    config.addinivalue_line("markers", "modern: needs what old versions of torch have not")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be: {report.longrepr}"
