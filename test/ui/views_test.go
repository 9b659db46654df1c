package ui

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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
	if !contains(whole, "row 1\n") || !contains(whole, strings.Repeat("x", 200_000)+"\n") {
		t.Errorf("the downloaded log has %d bytes: %.200s", len(whole), whole)
	}
	b.expectNoProblems()
}

// editEvent is a line of the log of an agent that changes a file.
func editEvent(path, removed, added string) string {
	return fmt.Sprintf(`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":%s,"old_string":%s,"new_string":%s}}}`, quote(path), quote(removed), quote(added))
}

func TestMessagesReachAnInteractiveSession(t *testing.T) {
	ns := newNamespace(t, "talk-")
	sessionPod(t, createSession(t, ns, "pair", "Wait for messages.", true))
	u := startUI(t, "-n", ns)
	messages, isBusy := make(chan string, 1), atomic.Bool{}
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isBusy.Load() {
			http.Error(w, "the agent works on another message", http.StatusConflict)
			return
		}
		text, _ := io.ReadAll(r.Body)
		messages <- r.URL.Path + " " + string(text)
		fmt.Fprintln(w, `{"type":"text","text":"I add a test."}`)
		_ = http.NewResponseController(w).Flush()
		u.proxy.addLogLine(`{"type":"text","text":"I add a test."}`)
		<-r.Context().Done() // the agent works longer than the page waits
	}))
	defer runner.Close()
	u.proxy.forwardTarget = runner.Listener.Addr().String()
	b := openBrowser(t, u)
	b.open("/k/session/" + ns + "/pair")
	b.waitForText("#message", "Message to the agent", "session attach -n "+ns+" pair")
	b.run("typing", chromedp.SendKeys(chromedp.CSS("#message-text"), "Now add a test."))
	b.clickText("#message button", "Send")
	b.waitForText("#message-status", "Sent: the agent works on it.")
	require.Equal(t, "/messages Now add a test.", <-messages)
	b.waitForText("#log-lines", "I add a test.")
	require.Equal(t, "", evaluate[string](b, "document.querySelector('#message-text').value"))
	isBusy.Store(true)
	b.run("typing", chromedp.SendKeys(chromedp.CSS("#message-text"), "And another."))
	b.clickText("#message button", "Send")
	b.waitForText("#message-status", "the agent works on another message")
	require.Equal(t, "And another.", evaluate[string](b, "document.querySelector('#message-text').value"))
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

func TestASequenceHasPagesForItsLogRunsEventsAndYAML(t *testing.T) {
	ns := newNamespace(t, "tabs-")
	schedule := newSchedule(t, ns, "nightly", "the operator was away")
	failed := failedSequence(t, ns, "migration", "no migration to version 8", "")
	stepPod(t, failed, "migrate")
	owned := runningSequence(t, ns, "nightly-29500000")
	before := owned.DeepCopy()
	owned.OwnerReferences = decision.ControllerReferences("Schedule", schedule)
	require.NoError(t, cluster.Patch(t.Context(), owned, client.MergeFrom(before)))
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "failed", Namespace: ns}, InvolvedObject: corev1.ObjectReference{Kind: "SequentialJob", Namespace: ns, Name: "migration", UID: failed.UID},
		Type: corev1.EventTypeWarning, Reason: "StepFailed", Message: "step migrate failed", LastTimestamp: *ago(time.Minute),
	}
	require.NoError(t, cluster.Create(t.Context(), event))
	u := startUI(t, "-n", ns)
	u.proxy.addLogLine("there is no migration to version 8")
	b := openBrowser(t, u)
	b.open("/k/seq/" + ns + "/migration")
	for tab, shown := range map[string]string{
		"Log": "there is no migration to version 8", "Runs": "Failed", "Events": "StepFailed", "YAML": "image: registry.example/etl:1", "Steps": "Rerun from here",
	} {
		b.clickText("main nav a", tab)
		b.waitForText("#content", shown)
	}
	b.clickText("main nav a", "Events")
	b.waitForText("#pods", "migration-migrate-x7k2p", "migrate", "Running")

	// The page remembers the run before a rerun.
	b.clickText("main nav a", "Runs")
	b.waitForText("#run-migration", "Failed", "28m")
	update(t, failed, func(sj *v1alpha1.SequentialJob) {
		sj.Status.Run, sj.Status.Phase, sj.Status.StartTime, sj.Status.CompletionTime = 2, v1alpha1.PhaseCompleted, ago(time.Minute), ago(0)
	})
	b.waitForText("#run-migration-2", "Completed", "1m")
	b.waitForText("#run-migration-1", "Failed", "28m")

	// A Schedule and its runs link to each other.
	b.open("/k/schedule/" + ns + "/nightly")
	b.waitForText("#runs", "nightly-29500000", "Running")
	b.clickText("#runs a", "nightly-29500000")
	b.waitForText("main h1", "nightly-29500000")
	b.clickText("main nav a", "nightly")
	b.waitForText("#runs", "nightly-29500000")
	b.expectNoProblems()
}
