package ui

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestSequenceShowsItsTimelineAndLiveLog(t *testing.T) {
	ns := newNamespace(t, "sequence-")
	nightly := runningSequence(t, ns, "nightly")
	stepPod(t, nightly, "transform")
	u := startUI(t, "-n", ns)
	u.proxy.addLogLine("row 1")
	b := openBrowser(t, u)
	b.open("/k/seq/" + ns + "/nightly")
	b.waitForText("#steps", "extract", "Succeeded", "4m0s", "transform", "Running", "load", "Pending")
	b.waitForText("#log", "Log of step transform", "row 1")
	b.clickText("#step-transform a", "Log")
	b.waitForText("#log-lines", "row 1")
	u.proxy.addLogLine("row 2 \x1b[31mred\x1b[0m <script>alert(1)</script>")
	b.waitForText("#log-lines", "row 2 red <script>alert(1)</script>")
	update(t, nightly, func(sj *v1alpha1.SequentialJob) {
		sj.Status.Steps[1].Phase, sj.Status.Steps[1].CompletionTime = v1alpha1.StepSucceeded, ago(0)
		sj.Status.Steps[1].Output = "rows=2"
	})
	b.waitForText("#step-transform", "Succeeded", "Output")
	b.waitForText("#log-lines", "row 2") // the log stays while the page changes
	u.proxy.addLogLine("row 3 " + strings.Repeat("x", 200_000))
	b.waitForText("#log-lines", "more bytes: download the log")
	b.run("filtering", chromedp.SendKeys(chromedp.CSS("#log-filter"), "ROW 2"))
	poll.Until(t, "other lines to be hidden", func() bool {
		return !contains(b.text("#log-lines"), "row 1") && contains(b.text("#log-lines"), "row 2")
	})
	whole := evaluate[string](b, "fetch(document.querySelector('#log a[download]').href).then(r => r.text())")
	require.True(t, contains(whole, "row 1\n") && contains(whole, strings.Repeat("x", 200_000)+"\n"),
		"the downloaded log has %d bytes: %.200s", len(whole), whole)
	b.expectNoProblems()
}

// editEvent is a line of the log of an agent that changes a file.
func editEvent(path, removed, added string) string {
	return fmt.Sprintf(`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":%s,"old_string":%s,"new_string":%s}}}`, quote(path), quote(removed), quote(added))
}

// The server's tests send messages. No Pod accepts one here.
func TestTheFieldOfAMessageIsEmptyOnceItIsSent(t *testing.T) {
	ns := newNamespace(t, "talk-")
	createSession(t, ns, "pair", "Wait for messages.", true)
	b := openBrowser(t, startUI(t, "-n", ns))
	b.open("/k/session/" + ns + "/pair")
	b.waitForText("#message", "Message to the agent", "session attach -n "+ns+" pair")
	b.run("typing", chromedp.SendKeys(chromedp.CSS("#message-text"), "Now add a test."))
	b.clickText("#message button", "Send")
	b.waitForText("#message-status", "has no Pod that accepts messages")
	value := func() string { return evaluate[string](b, "document.querySelector('#message-text').value") }
	require.Equal(t, "Now add a test.", value())
	evaluate[bool](b, `(document.querySelector('#message-status').innerHTML = '<p data-sent>Sent</p>', document.dispatchEvent(new Event('htmx:after:swap')))`)
	require.Equal(t, "", value())
	b.expectNoProblems()
}

func TestPageCatchesUpAfterItsStreamWasInterrupted(t *testing.T) {
	ns := newNamespace(t, "offline-")
	nightly := runningSequence(t, ns, "nightly")
	b := openBrowser(t, startUI(t, "-n", ns))
	b.open("/k/seq")
	b.waitForText("main", "nightly", "Running")
	b.setHidden(true) // ends the stream
	b.setOffline(true)
	update(t, nightly, func(sj *v1alpha1.SequentialJob) { sj.Status.Phase = v1alpha1.PhaseFailed })
	b.setHidden(false)
	b.waitForText("#connection", "Disconnected")
	b.setOffline(false)
	b.waitForText("main", "Failed")
	poll.Until(t, "the page to be connected", func() bool { return b.text("#connection") == "" })
	b.expectNoProblems()
}

// violation is a rule of axe-core that a page violates.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

func TestAccessibilityOfAllViewsInBothColorsAndOnAPhone(t *testing.T) {
	script, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		t.Fatalf("AXE must name axe.min.js: use make soak SOAK_PARTS=ui: %v", err)
	}
	ns := newNamespace(t, "team-data-")
	longest, awkward := strings.Repeat("a", 253), "<b>שלום 👩‍👩‍👧🚀</b> "+strings.Repeat("b", 150)
	failedSequence(t, ns, longest, awkward, awkward)
	migration := failedSequence(t, ns, "schema-migration", awkward, "schema=5")
	stepPod(t, migration, "migrate")
	waitingSequence(t, ns, "release")
	runningSequence(t, ns, "nightly-etl")
	newDeadLetterQueue(t, ns, "no such address "+awkward, 3)
	newPool(t, ns, "mailers", awkward)
	newWorkerPod(t, ns, "mailers", "mailers-2-x7k2p")
	sessionPod(t, createSession(t, ns, "fix-tests", awkward, true))
	newSchedule(t, ns, "nightly", awkward)
	create(t, staleJob(ns, "train"), failStaleJob)
	u := startUI(t, "-n", ns)
	u.proxy.addLogLine(strings.Repeat("x", 64<<10))
	u.proxy.addLogLine(awkward)
	u.proxy.addLogLine("there is no migration to version 8")
	u.proxy.addLogLine(editEvent("shop/cart.go", "total := 0", "total := sum(items)"))
	b := openBrowser(t, u)
	views := []struct{ name, path, shows string }{
		{"overview", "/", "release"},
		{"sequences", "/k/seq", "nightly-etl"},
		{"longest-name", "/k/seq/" + ns + "/" + longest, "Rerun from here"},
		{"sequence", "/k/seq/" + ns + "/schema-migration?log=migrate", "Rerun from here"},
		{"queue", "/k/queue/" + ns + "/mail", "31.5/s"},
		{"dead-letters", "/k/queue/" + ns + "/mail/dead", "no such address"},
		{"pool", "/k/pool/" + ns + "/mailers", "rolling out"},
		{"workers", "/k/pool/" + ns + "/mailers/workers", "mailers-2-x7k2p"},
		{"session", "/k/session/" + ns + "/fix-tests", "Retried"},
		{"changes", "/k/session/" + ns + "/fix-tests/changes", "+ total := sum(items)"},
		{"message", "/k/session/" + ns + "/fix-tests?log=", "pull/17"},
		{"dead-letters-filtered", "/k/queue/" + ns + "/mail/dead?q=such", "Delete all that match"},
		{"schedule", "/k/schedule/" + ns + "/nightly", "Europe/Berlin"},
		{"stale", "/stale", "train"},
		{"log", "/k/seq/" + ns + "/schema-migration/logs", "schema-migration"},
		{"runs", "/k/seq/" + ns + "/schema-migration/runs", "run"},
		{"events", "/k/seq/" + ns + "/schema-migration/events", "schema-migration-migrate-x7k2p"},
		{"yaml", "/k/seq/" + ns + "/schema-migration/yaml", "kind: SequentialJob"},
		{"search", "/search?q=a", "nightly-etl"},
		{"action", "/k/session/" + ns + "/fix-tests/action?do=stop", "Type fix-tests"},
		{"missing", "/k/seq/" + ns + "/other", "does not exist"},
	}
	for _, width := range []int64{390, 1280, 768, 2560} {
		b.run("changing the width", command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 500}))
		check := func(name string) {
			for _, colors := range []string{"light", "dark"} {
				b.useColors(colors)
				where := fmt.Sprintf("%s-%d-%s", name, width, colors)
				b.expectAccessible(string(script), where)
				b.expectFits(where)
				b.screenshot(where)
			}
		}
		for _, view := range views {
			b.open(view.path)
			b.waitForText("main", view.shows)
			if view.name == "sequence" {
				b.waitForText("#log-lines", "no migration to version 8")
			}
			check(view.name)
		}
		b.open("/k/seq/" + ns + "/release")
		b.clickText("main a.button", "Approve deploy")
		b.waitForText("#dialog", "kubectl yardmaster")
		check("dialog")
	}
	u.proxy.interrupt()
	for _, view := range views { // the first follows the connection, and others may be read once
		if view.name != "action" { // it shows no state
			b.open(view.path)
			b.waitForText("main", "What is shown may be old", "connection lost")
		}
	}
	b.open("/k/seq/" + ns + "/nightly-etl")
	poll.Until(t, "the timer of the step to stop", func() bool { return contains(b.text("#step-transform time"), "?") })
	b.expectNoProblems()
}

// expectFits fails the test if the page, or a part of it, is wider than its window.
func (b *browser) expectFits(where string) {
	b.t.Helper()
	if wide := evaluate[string](b, `[document.documentElement, ...document.querySelectorAll('.scroll, #log-lines, #dialog')]
		.filter(e => e.scrollWidth > e.clientWidth).map(e => e.tagName + ' ' + e.ariaLabel + ' ' + e.scrollWidth + ' of ' + e.clientWidth).join(', ')`); wide != "" {
		b.t.Errorf("%s is too wide: %s", where, wide)
	}
}

func (b *browser) expectAccessible(axe, where string) {
	b.t.Helper()
	violations := evaluate[[]violation](b, axe+"; axe.run(document).then(r => r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => ({html: n.html, failureSummary: n.failureSummary}))})))")
	for _, v := range violations {
		for _, node := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %.200s: %s", where, v.ID, v.Help, node.HTML, node.FailureSummary)
		}
	}
}

func TestKeyboardReachesSearchFilterRowsAndViews(t *testing.T) {
	ns, other := newNamespace(t, "keyboard-"), newNamespace(t, "keyboard-")
	runningSequence(t, ns, "nightly")
	runningSequence(t, other, "weekly")
	newQueue(t, ns, "night-mail", "ready", 0)
	b := openBrowser(t, startUI(t, "-n", ns+","+other))
	b.waitForText("main", "nightly")
	b.pressUntilFocused("/", "search")
	b.press("night\r")
	b.waitForText("main", "nightly", "night-mail")
	b.pressUntilFocused("/", "search")
	b.press("-mail") // the results follow without Enter
	poll.Until(t, "the search to follow", func() bool { return !contains(b.text("main"), "nightly") && contains(b.text("main"), "night-mail") })
	b.leaveField()
	b.press("g")
	b.press("s")
	b.waitForText("main", "2 in total")
	hasFocus := func(row int) bool {
		return evaluate[bool](b, fmt.Sprintf("document.querySelectorAll('main tbody th a')[%d] === document.activeElement", row))
	}
	poll.Until(t, "k to move the focus to the first row", func() bool { // the page may show its text before it listens
		if hasFocus(0) {
			return true
		}
		b.press("k")
		return false
	})
	b.press("j")
	poll.Until(t, "the second row to have the focus", func() bool { return hasFocus(1) })
	b.pressUntilFocused("f", "filter")
	b.press("nig")
	b.waitForText("main", `1 of 2 match "nig"`)
	require.Equal(t, "?q=nig", evaluate[string](b, "location.search"))
	b.clickText("#namespaces summary", "All namespaces")
	b.clickText("#namespaces a", other)
	b.waitForText("main", "weekly", "1 in total")
	b.open("/k/seq/" + ns + "/nightly")
	b.clickText("#share", "Copy link")
	poll.Until(t, "the link to be copied", func() bool { return b.text("#share") != "Copy link" })
	evaluate[bool](b, "document.querySelector('main a.button').focus() ?? true")
	b.press("\r")
	b.waitForText("#dialog", "kubectl yardmaster")
	isClosed := func() bool { return !evaluate[bool](b, "document.querySelector('#dialog').open") }
	b.press("\u001b")
	poll.Until(t, "the dialog to be closed", isClosed)
	require.Equal(t, "Suspend", evaluate[string](b, "document.activeElement.textContent"))
	b.press("\r")
	b.waitForText("#dialog", "kubectl yardmaster")
	b.press("\r")
	b.waitForText("#dialog", "The command succeeded")
	b.press("\r")
	poll.Until(t, "the dialog to be closed", isClosed)
	b.expectNoProblems()
}

// pressUntilFocused presses a key that moves the focus to a field, and removes the character that the browser of the test also types.
func (b *browser) pressUntilFocused(key, id string) {
	b.t.Helper()
	poll.Until(b.t, key+" to move the focus to "+id, func() bool {
		if evaluate[bool](b, "document.activeElement?.id === "+quote(id)) {
			return true
		}
		b.press(key)
		return false
	})
	evaluate[bool](b, fmt.Sprintf("(document.activeElement.value = document.activeElement.value.replace(%s, ''), true)", quote(key)))
}

func (b *browser) leaveField() {
	b.t.Helper()
	evaluate[bool](b, "(document.activeElement.blur(), true)")
}

func TestFocusStaysWhileThePageChanges(t *testing.T) {
	ns := newNamespace(t, "focus-")
	nightly := runningSequence(t, ns, "nightly")
	b := openBrowser(t, startUI(t, "-n", ns))
	b.open("/k/seq/" + ns + "/nightly")
	evaluate[bool](b, "(document.querySelector('#step-transform a').focus(), true)")
	update(t, nightly, func(sj *v1alpha1.SequentialJob) { sj.Status.Steps[1].Message = "half of the rows" })
	b.waitForText("main", "half of the rows")
	require.Equal(t, "step-transform", evaluate[string](b, "document.activeElement.closest('tr')?.id ?? ''"))
}
