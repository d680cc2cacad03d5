def test_r2_1_robots_txt_comes_first(run):
    result = run("http://path.test/public", "http://path.test/private/x")
    assert result.returncode == 0, result.output
    assert result.asked("path.test") == ["/robots.txt", "/public"]
