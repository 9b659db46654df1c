package ui

import (
	"fmt"
	"testing"

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

// hostileText tries to run a script, to leave its place and to make htmx do something.
const hostileText = `<script>window.pwned=1</script>"'><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1"></svg>` +
	`</pre></td></table></main><iframe src="https://evil.example/"></iframe><a href="javascript:window.pwned=1" id="evil">x</a>` +
	`<div hx-get="https://evil.example/" hx-trigger="load" hx-on:htmx:load="window.pwned=1"></div><hx-partial hx-target="#dialog">x</hx-partial><style>*{display:none}</style>`

// newDeadLetterQueue creates a Queue on a real broker with dead letters.
func newDeadLetterQueue(t *testing.T, ns, text string, letters int) *v1alpha1.Queue {
	t.Helper()
	server := natstest.Start(t)
	address := "nats://" + server.Address()
	e, err := engine.Connect(t.Context(), broker.Credentials{URL: address})
	require.NoError(t, err)
	t.Cleanup(e.Disconnect)
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: ns + "/mail"}
	if _, err := e.EnsureQueue(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	js := server.JetStream()
	for i := range letters {
		message := nats.NewMsg("yardmaster.mail.dead.default")
		message.Data = fmt.Appendf(nil, "letter %d %s", i+1, text)
		message.Header.Set("Yardmaster-Error", text)
		message.Header.Set("Yardmaster-Attempts", "5")
		message.Header.Set("Note", text)
		if _, err := js.PublishMsg(t.Context(), message); err != nil {
			t.Fatal(err)
		}
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
	if shown := b.confirm("Requeue 2 dead letters", ""); !contains(shown, "dead requeue") || !contains(shown, "mail 2 4") || !contains(shown, "requeued 2 dead letters") {
		t.Errorf("the dialog shows:\n%s", shown)
	}
	poll.Until(t, "three letters to remain", rows(3))
	check("5")
	b.clickText("main button", "Delete selected")
	if shown := b.confirm("Delete 1 dead letter", "mail"); !contains(shown, "dead delete --yes") || !contains(shown, "deleted 1 dead letter") {
		t.Errorf("the dialog shows:\n%s", shown)
	}
	poll.Until(t, "two letters to remain", rows(2))
	b.open("/k/queue/" + ns + "/mail/dead?q=other")
	b.waitForText("main", `No dead letter has "other"`)
	b.open("/k/queue/" + ns + "/mail/dead?q=such")
	b.waitForText("main", "no such address")
	if shown := b.do("Delete all that match", "mail"); !contains(shown, "--filter=such") || !contains(shown, "deleted 2 dead letters") {
		t.Errorf("the dialog shows:\n%s", shown)
	}
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
