package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	g "maragu.dev/gomponents"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/require"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hostileTexts try to run a script, to load something, to leave their place, or to hide what they are.
var hostileTexts = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`</pre></td></table></main><iframe src=https://evil.example></iframe>`,
	`javascript:alert(1)`,
	`<div hx-get=/evil hx-trigger=load></div>`,
	`<hx-partial hx-target="#dialog">x</hx-partial>`,
	`--><style>*{display:none}</style><!--`,
	"data: x\n\nevent: logreset\ndata: x",
	"a\r\n\r\n<b>b</b>",
	"\x1b]0;title\x07\x1b[2J\x00",
	"\u202egnp.exe\u2066",
	"\xff\xfe<i>",
	`{{.}}${alert(1)}`,
	`https://evil.example/"onmouseover="alert(1)`,
	"https://me:secret@evil.example/", "HTTPS://evil.example/\u202e", "//evil.example/", "data:text/html,<script>alert(1)</script>",
}

// hostilePages returns a page for each field that a user, a program or another system can write.
func hostilePages(text string) map[string]g.Node {
	l := Links{Base: "/base"}
	at := metav1.NewTime(testTime)
	conditions := []metav1.Condition{{Type: text, Status: metav1.ConditionFalse, Reason: text, Message: text, LastTransitionTime: at}, {Type: "Ready", Status: "False", Reason: text, Message: text}}
	meta := metav1.ObjectMeta{Name: "x", Namespace: "a"}
	sequence := &v1alpha1.SequentialJob{
		ObjectMeta: meta, Spec: v1alpha1.SequentialJobSpec{Containers: []v1alpha1.Step{{Name: text}}},
		Status: v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseFailed, Reason: text, ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions}, RunStatus: v1alpha1.RunStatus{Times: v1alpha1.Times{StartTime: &at, CompletionTime: &at}}, Progress: v1alpha1.Progress{CurrentStep: text},
			Parameters: []v1alpha1.Parameter{{Name: text, Value: text}}, Results: []v1alpha1.Parameter{{Name: text, Value: text}},
			Steps: []v1alpha1.StepStatus{{Name: text, Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{JobName: text, Explanation: v1alpha1.Explanation{Reason: text, Message: text}}, Output: text, ApprovedBy: text}},
		},
	}
	session := &v1alpha1.AgenticSession{
		ObjectMeta: meta, Spec: v1alpha1.AgenticSessionSpec{Prompt: text, DisplayName: text, Runner: text, Repos: []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(text), Branch: v1alpha1.GitBranch(text)}}}, Limits: v1alpha1.SessionLimits{RunLimits: v1alpha1.RunLimits{MaxCostUSD: new(v1alpha1.Number(text))}}},
		Status: v1alpha1.AgenticSessionStatus{
			Phase: v1alpha1.SessionFailed, RunStatus: v1alpha1.RunStatus{Run: 1}, StoppedReason: v1alpha1.StopReason(text), ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions}, TotalCostUSD: new(v1alpha1.Number(text)),
			Attempts: []v1alpha1.SessionAttempt{{Outcome: v1alpha1.RunOutcome(text), JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: text, Message: text}}, CostUSD: new(v1alpha1.Number(text))}},
			Result: &v1alpha1.SessionResult{
				Summary: text, Usage: &apiextensionsv1.JSON{Raw: []byte(text)}, Repositories: []v1alpha1.SessionRepositoryResult{{Name: text, Branch: text, Commit: text, PullRequestURL: text, Error: text}},
			},
		},
	}
	queue := &v1alpha1.Queue{ObjectMeta: meta, Status: v1alpha1.QueueStatus{ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions}, Engine: v1alpha1.Engine(text)}}
	pool := &v1alpha1.WorkerPool{ObjectMeta: meta, Spec: v1alpha1.WorkerPoolSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 3}}, Status: v1alpha1.WorkerPoolStatus{
		ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions}, LastDecision: &v1alpha1.ScaleDecision{Explanation: v1alpha1.Explanation{Reason: text, Message: text}},
		Revisions: []v1alpha1.RevisionStatus{{Name: text, Version: text, Image: text}},
	}}
	schedule := &v1alpha1.Schedule{ObjectMeta: meta, Spec: v1alpha1.ScheduleSpec{Cron: v1alpha1.Cron{Schedule: text, TimeZone: text}, Message: &v1alpha1.ScheduledMessage{QueueRef: v1alpha1.LocalReference{Name: text}}}, Status: v1alpha1.ScheduleStatus{
		ObservedStatus: v1alpha1.ObservedStatus{Conditions: conditions}, LastMissed: &v1alpha1.MissedTime{Time: at, Explanation: v1alpha1.Explanation{Reason: text, Message: text}}, ActiveRuns: []v1alpha1.ScheduledRun{{Name: text}},
	}}
	entries := map[*view.Kind]*view.Entry{}
	state := &view.State{Entries: map[*view.Kind][]*view.Entry{}, Watches: map[*view.Kind]view.WatchState{}}
	for _, object := range []any{sequence, session, queue, pool, schedule} {
		e := view.NewEntry(object)
		entries[e.Kind] = e
		state.Entries[e.Kind], state.Watches[e.Kind] = []*view.Entry{e}, view.WatchState{Synced: true, Problem: text, Lost: testTime}
	}
	pages := map[string]g.Node{
		"overview":     Overview(l, view.NewOverview(state, testTime)),
		"sequence":     Sequence(l, view.NewSequence(entries[view.Sequences], sequence, state.Runs(view.SeriesOf(entries[view.Sequences])), testTime)),
		"session":      Session(l, view.NewSession(entries[view.Sessions], session, testTime)),
		"lost":         Lost(state.Lost()),
		"past":         past(&view.Past{Window: time.Hour, Problem: text}),
		"queue":        Queue(l, view.NewQueue(entries[view.Queues], queue, nil, &view.Past{})),
		"pool":         Pool(l, view.NewPool(entries[view.Pools], pool, nil, &view.Past{}, testTime)),
		"schedule":     Schedule(l, view.NewSchedule(entries[view.Schedules], schedule, &view.State{}, testTime)),
		"dead letters": DeadLetters(l, entries[view.Queues], []view.DeadLetter{{Priority: text, Error: text, Origin: text, Headers: map[string][]string{text: {text}}, Payload: []byte(text)}}, text, text),
		"matching":     dialogOf(l, entries[view.Queues], view.MatchingLetterActions(entries[view.Queues], text)),
		"changes":      Changes(l, view.NewChanges(entries[view.Sessions], hostileEvents(text), text)),
		"runs":         Runs(l, entries[view.Sequences], []view.Run{{Entry: &view.Entry{Kind: view.Sequences, Name: text, Namespace: text, Status: text}, Request: text, IsGone: true}}, testTime),
		"search":       Search(l, view.NewSearch(state, text)),
		"description":  Description(l, view.NewDescription(entries[view.Sequences], hostileDescription(text), text)),
		"no events":    Description(l, view.NewDescription(entries[view.Sequences], []byte(text), "")),
		"YAML":         YAML(l, entries[view.Sequences], text, ""),
		"no changes":   Changes(l, view.NewChanges(entries[view.Sessions], []byte(text), "")),
		"message":      MessageOutcome(l, entries[view.Sessions], text),
		"talk":         (&Shell{Links: l, Title: text, LogTitle: "Log", LogFile: l.LogFile(view.Sessions, text, text, text), Talk: entries[view.Sessions]}).Document(nil),
		"workers":      Workers(l, view.NewWorkers(entries[view.Pools], hostileWorkers(text), "")),
		"no workers":   Workers(l, view.NewWorkers(entries[view.Pools], []byte(text), text)),
		"stale Jobs":   Stale(l, view.NewStale(&view.Scope{}, [][]byte{hostileReport(text)}, text, testTime)),
		"bad report":   Stale(l, view.NewStale(&view.Scope{Namespaces: []string{text, "b"}}, [][]byte{[]byte(text)}, "", testTime)),
		"outcome":      Outcome(l, text, []string{"seq", text}, false, text, l.Base+"/"),
		"missing":      Missing(view.Queues, text, text, view.WatchState{Problem: text}),
		"confirmation": Confirmation(Links{Base: "/base", CommandFlags: []string{"--context=" + text}}, entries[view.Sequences], &view.Action{ID: text, Argument: text, Label: text, Effect: text, Args: []string{text}, Destroys: true, Confirm: text}, text),
		"shell":        (&Shell{Links: Links{Base: "/base", Namespace: text}, Title: text, Place: text, Namespaces: []string{text, "b"}, Share: text, Query: text, Filtered: view.Queues, Prompt: text, IsConversation: true, Events: l.Events(text, text), LogTitle: text, LogFile: l.LogFile(view.Sequences, text, text, text)}).Document(Message(text, text)),
	}
	for _, kind := range view.Kinds {
		pages["list of "+kind.Title] = List(l, view.NewList(state, kind, view.Query{Text: text}, testTime))
		pages["whole list of "+kind.Title] = List(l, view.NewList(state, kind, view.Query{}, testTime))
	}
	return pages
}

func dialogOf(l Links, e *view.Entry, actions []view.Action) g.Node {
	return g.Map(actions, func(action view.Action) g.Node { return Confirmation(l, e, &action, "") })
}

func mustMarshal(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

func hostileEvents(text string) []byte {
	input := mustMarshal(map[string]string{"file_path": text, "old_string": text, "new_string": text})
	event := mustMarshal(&agentprofile.Event{Type: agentprofile.EventToolCall, Tool: &agentprofile.Tool{Name: text, Input: input}})
	return append([]byte("run 1, attempt 1 | "), event...)
}

func hostileDescription(text string) []byte {
	return mustMarshal(render.Description{Pods: []render.PodState{{Name: text, Part: text, State: text, Node: text}}, Events: []render.Event{{Type: text, Object: text, Reason: text, Message: text}}})
}

func hostileWorkers(text string) []byte {
	return mustMarshal([]render.Worker{{Name: text, State: text, Revision: text, Node: text}})
}

func hostileReport(text string) []byte {
	return mustMarshal(&v1alpha1.JobReportList{Items: []v1alpha1.JobReport{{Status: v1alpha1.JobReportStatus{
		Findings: []v1alpha1.JobFinding{{Name: text, JobFindingClass: v1alpha1.JobFindingClass{Category: v1alpha1.JobCategory(text), Owner: &v1alpha1.JobOwner{Kind: text, Name: text}, Reason: text}, Cause: text, Message: text}},
	}}}})
}

// allowedElements are those that the package writes. The shell also writes those of a document.
var allowedElements = "a b button caption circle code dd details dialog div dl dt em figcaption figure form h1 h2 header input label li main nav ol p path pre rect section small span strong summary svg table tbody td textarea th thead time tr ul " +
	"html head body title meta link script"

func TestHostileTextOfAllFieldsStaysText(t *testing.T) {
	for i, text := range hostileTexts {
		for name, node := range hostilePages(text) {
			t.Run(fmt.Sprintf("%s, text %d", name, i+1), func(t *testing.T) {
				out, err := Render(node)
				require.NoError(t, err)
				require.True(t, !strings.ContainsAny(string(out), "\x00\x07\x1b\r\u202e\u2066"), "%q leaves control characters", text)
				root, err := html.Parse(bytes.NewReader(out))
				require.NoError(t, err)
				checkNode(t, root, name == "shell" || name == "talk")
			})
		}
	}
}

func checkNode(t *testing.T, node *html.Node, isDocument bool) {
	t.Helper()
	if node.Type == html.ElementNode {
		require.True(t, strings.Contains(" "+allowedElements+" ", " "+node.Data+" "), "element %s", node.Data)
		require.True(t, node.Data != "script" || isDocument && node.FirstChild == nil, "an inline script")
		for _, attribute := range node.Attr {
			if attribute.Key != "href" || !isSafeExternalLink(node) {
				checkAttribute(t, &attribute)
			}
		}
	}
	for child := range node.ChildNodes() {
		checkNode(t, child, isDocument)
	}
}

// isSafeExternalLink reports whether an element is a link to another site, which opens in a tab of its own without access
// to the page. Only the address of a pull request is one.
func isSafeExternalLink(node *html.Node) bool {
	attributes := map[string]string{}
	for _, attribute := range node.Attr {
		attributes[attribute.Key] = attribute.Val
	}
	address, err := url.Parse(attributes["href"])
	return err == nil && node.Data == "a" && address.Scheme == "https" && address.Host != "" && address.User == nil && len(node.Attr) == 3 &&
		attributes["rel"] == "noopener noreferrer" && attributes["target"] == "_blank"
}

func checkAttribute(t *testing.T, attribute *html.Attribute) {
	t.Helper()
	switch key := attribute.Key; {
	case strings.HasPrefix(key, "on"), key == "style", key == "srcdoc", key == "hx-trigger", strings.HasPrefix(key, "hx-on"):
		t.Errorf("attribute %s=%q", key, attribute.Val)
	case key == "href", key == "src", key == "action", key == "hx-get", key == "hx-post", key == "hx-sse:connect":
		require.True(t, strings.HasPrefix(attribute.Val, "/base/") || attribute.Val == "#main", "attribute %s=%q", key, attribute.Val)
	case key == "hx-target" && attribute.Val != "#main" && attribute.Val != "#dialog-content" && attribute.Val != "#message-status":
		t.Errorf("attribute %s=%q", key, attribute.Val)
	}
}

func TestPagesSayWhatTheUserMayNotRead(t *testing.T) {
	denied := view.WatchState{Synced: true, Denied: true, Problem: "not permitted to list queues in namespace a"}
	state := &view.State{Watches: map[*view.Kind]view.WatchState{view.Queues: denied}}
	l := Links{Base: "/base"}
	for name, node := range map[string]g.Node{
		"overview": Overview(l, view.NewOverview(state, testTime)),
		"list":     List(l, view.NewList(state, view.Queues, view.Query{}, testTime)),
		"missing":  Missing(view.Queues, "a", "mail", denied),
	} {
		out, err := Render(node)
		require.True(t, err == nil && strings.Contains(string(out), denied.Problem), "%s: %v:\n%s", name, err, out)
	}
}
