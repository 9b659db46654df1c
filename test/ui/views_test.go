package ui

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	engine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
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
	require.True(t, contains(whole, "row 1\n") && contains(whole, strings.Repeat("x", 200_000)+"\n"), "%d bytes: %.200s", len(whole), whole)
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
	require.True(t, err == nil, "AXE must name axe.min.js: use make soak SOAK_PARTS=ui: %v", err)
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
	evaluate[bool](b, "(document.activeElement.blur(), true)")
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

// hostileText tries to run a script, to leave its place and to make htmx do something.
const hostileText = `<script>window.pwned=1</script>"'><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1"></svg>` +
	`</pre></td></table></main><iframe src="https://evil.example/"></iframe><a href="javascript:window.pwned=1" id="evil">x</a>` +
	`<div hx-get="https://evil.example/" hx-trigger="load" hx-on:htmx:load="window.pwned=1"></div><hx-partial hx-target="#dialog">x</hx-partial><style>*{display:none}</style>`

// newDeadLetterQueue creates a Queue on a real broker with dead letters.
func newDeadLetterQueue(t *testing.T, ns, text string, letters int) *v1alpha1.Queue {
	server := natstest.Start(t)
	address := "nats://" + server.Address()
	e, err := engine.Connect(t.Context(), broker.Credentials{URL: address})
	require.NoError(t, err)
	t.Cleanup(e.Disconnect)
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: ns + "/mail"}
	_, err = e.EnsureQueue(t.Context(), config)
	require.NoError(t, err)
	js := server.JetStream()
	for i := range letters {
		message := nats.NewMsg("yardmaster.mail.dead.default")
		message.Data = fmt.Appendf(nil, "letter %d %s", i+1, text)
		message.Header.Set("Yardmaster-Error", text)
		message.Header.Set("Yardmaster-Attempts", "5")
		message.Header.Set("Note", text)
		_, err := js.PublishMsg(t.Context(), message)
		require.NoError(t, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "broker", Namespace: ns, Labels: map[string]string{"yardmaster.dev/broker": "true"}}, StringData: map[string]string{"url": address},
	}
	require.NoError(t, cluster.Create(t.Context(), secret))
	return newQueue(t, ns, "mail", text, int64(letters))
}

func TestSomeDeadLettersAreSelectedByBoxesOrText(t *testing.T) {
	ns := newNamespace(t, "select-")
	newDeadLetterQueue(t, ns, "no such address", 6)
	b := openBrowser(t, startUI(t, "-n", ns))
	rows := func(number int) func() bool {
		return func() bool { return evaluate[int](b, "document.querySelectorAll('main tbody tr').length") == number }
	}
	b.open("/k/queue/" + ns + "/mail/dead")
	b.waitForText("main", "no such address")
	b.clickText("main button", "Requeue selected")
	b.waitForText("#dialog", "Select at least one dead letter")
	b.press("\u001b")
	require.Contains(t, b.do("Requeue the oldest", ""), "requeued 1 dead letter")
	poll.Until(t, "five letters to remain", rows(5))
	check := func(ids ...string) {
		for _, id := range ids {
			b.run("selecting "+id, chromedp.Click(chromedp.CSS("#letter-"+id+" input")))
		}
	}
	check("2", "4")
	b.clickText("main button", "Requeue selected")
	shown := b.confirm("Requeue 2 dead letters", "")
	require.True(t, contains(shown, "dead requeue") && contains(shown, "mail 2 4") && contains(shown, "requeued 2 dead letters"), "dialog:\n%s", shown)
	poll.Until(t, "three letters to remain", rows(3))
	check("5")
	b.clickText("main button", "Delete selected")
	shown = b.confirm("Delete 1 dead letter", "mail")
	require.True(t, contains(shown, "dead delete --yes") && contains(shown, "deleted 1 dead letter"), "the dialog shows:\n%s", shown)
	poll.Until(t, "two letters to remain", rows(2))
	b.open("/k/queue/" + ns + "/mail/dead?q=other")
	b.waitForText("main", `No dead letter has "other"`)
	b.open("/k/queue/" + ns + "/mail/dead?q=such")
	b.waitForText("main", "no such address")
	shown = b.do("Delete all that match", "mail")
	require.True(t, contains(shown, "--filter=such") && contains(shown, "deleted 2 dead letters"), "the dialog shows:\n%s", shown)
	b.waitForText("main", `No dead letter has "such"`)
	b.expectNoProblems()
}

func TestHostileTextsDoNothingInTheBrowser(t *testing.T) {
	ns := newNamespace(t, "hostile-")
	failed := failedSequence(t, ns, "migration", hostileText[:250], hostileText)
	stepPod(t, failed, "migrate")
	newDeadLetterQueue(t, ns, hostileText, 2)
	newPool(t, ns, "mailers", hostileText[:250])
	sessionPod(t, createSession(t, ns, "fix-tests", hostileText[:200], true))
	newWorkerPod(t, ns, "mailers", "mailers-1-x7k2p")
	newSchedule(t, ns, "nightly", hostileText[:200])
	u := startUI(t, "-n", ns)
	u.proxy.addLogLine(hostileText)
	u.proxy.addLogLine(editEvent(hostileText, hostileText, hostileText))
	b := openBrowser(t, u)
	for path, shown := range map[string]string{
		"/": hostileText[:250], "/k/seq": hostileText[:250], "/k/seq/" + ns + "/migration": hostileText, "/k/queue/" + ns + "/mail": hostileText, "/k/queue/" + ns + "/mail/dead": hostileText,
		"/k/pool/" + ns + "/mailers": hostileText[:250], "/k/session/" + ns + "/fix-tests": hostileText[:200], "/k/schedule/" + ns + "/nightly": hostileText[:200],
		"/k/session/" + ns + "/fix-tests/changes": hostileText, "/k/pool/" + ns + "/mailers/workers": "mailers-1-x7k2p",
		"/k/queue/" + ns + "/mail/dead?q=%3Cscript": "<script", "/k/session/" + ns + "/fix-tests?log=": hostileText[:200],
		"/k/seq?q=" + "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E": "<img src=x onerror=alert(1)>",
	} {
		b.open(path)
		poll.Until(t, path+" to show the text as text", func() bool {
			return contains(evaluate[string](b, "document.body.textContent + document.querySelector('#filter')?.value"), shown)
		})
		b.expectHarmless(path)
	}
	b.open("/k/seq/" + ns + "/migration?log=migrate")
	poll.Until(t, "the log to show the text as text", func() bool {
		return contains(evaluate[string](b, "document.querySelector('#log-lines').textContent"), hostileText)
	})
	b.expectHarmless("log")
	update(t, failed, func(sj *v1alpha1.SequentialJob) { sj.Status.Steps[1].Message = hostileText[150:] })
	poll.Until(t, "a change to be shown as text", func() bool {
		return contains(evaluate[string](b, "document.querySelector('main').textContent"), hostileText[150:])
	})
	b.expectHarmless("change")
	b.expectNoProblems()
}

// expectHarmless fails the test if a hostile text became an element or ran.
func (b *browser) expectHarmless(where string) {
	b.t.Helper()
	require.True(b.t, !evaluate[bool](b, "window.pwned !== undefined || !!document.querySelector('main img, iframe, main svg[onload], main script, style, #evil, hx-partial, [hx-trigger], [onerror]')"),
		"%s: a hostile text became an element, or ran", where)
}
