package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) *metav1.Time {
	return &metav1.Time{Time: testTime.Add(time.Duration(minutes) * time.Minute)}
}

// failedSequence ran from 11:00 to 11:40. Its second step failed.
func failedSequence() *v1alpha1.SequentialJob {
	sj := testbuilder.SequentialJob("etl", "a").Step("extract").Step("load").Step("report").Obj()
	sj.Status = v1alpha1.SequentialJobStatus{
		Phase: v1alpha1.PhaseFailed, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: at(-60), CompletionTime: at(-20)}},
		Steps: []v1alpha1.StepStatus{
			{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}, Times: v1alpha1.Times{StartTime: at(-60), CompletionTime: at(-40)}}},
			{Name: "load", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}, Times: v1alpha1.Times{StartTime: at(-40), CompletionTime: at(-20)}, Explanation: v1alpha1.Explanation{Message: "exit code 3"}}},
			{Name: "report", Phase: v1alpha1.StepSkipped},
		},
	}
	return sj
}

func actionIDs(actions []Action) []string {
	var ids []string
	for _, action := range actions {
		ids = append(ids, strings.TrimSuffix(action.ID+" "+action.Argument, " "))
	}
	return ids
}

func TestTimelineIsBetweenTheStartOfTheRunAndItsEndOrNow(t *testing.T) {
	running := failedSequence()
	running.Status.Phase, running.Status.CompletionTime = v1alpha1.PhaseRunning, nil
	running.Status.Steps[1].Phase, running.Status.Steps[1].CompletionTime = v1alpha1.StepRunning, nil
	rerun := failedSequence()
	rerun.Status.Run = 2
	for want, sj := range map[string]*v1alpha1.SequentialJob{
		"extract 0+50 load 50+50 report 0+0":                    failedSequence(),
		"extract 0+33 load 33+67 report 0+0":                    running,
		"extract 0+0 from run 1 load 0+0 from run 1 report 0+0": rerun,
	} {
		var bars []string
		for _, step := range NewSequence(NewEntry(sj), sj, nil, testTime).Steps {
			bar := fmt.Sprintf("%s %.0f+%.0f", step.Name, step.Offset, step.Length)
			bars = append(append(bars, bar), step.Remarks...)
		}
		require.Equal(t, want, strings.Join(bars, " "))
	}
}

func TestActionsOfASequenceDependOnItsState(t *testing.T) {
	waiting := testbuilder.SequentialJob("etl", "a").Step("deploy").Obj()
	waiting.Status = v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseSuspended, RunStatus: v1alpha1.RunStatus{Run: 1}, Steps: []v1alpha1.StepStatus{{Name: "deploy", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired}}}}}
	suspended := failedSequence()
	suspended.Spec.Suspend = true
	for name, row := range map[string]struct {
		sj          *v1alpha1.SequentialJob
		want, steps []string
	}{
		"new":                     {testbuilder.SequentialJob("etl", "a").Step("load").Obj(), []string{"suspend"}, nil},
		"failed":                  {failedSequence(), []string{"rerun Failed", "rerun Start", "suspend"}, []string{"rerun extract", "rerun load"}},
		"suspended":               {suspended, []string{"rerun Failed", "rerun Start", "resume"}, []string{"rerun extract", "rerun load"}},
		"waiting for an approval": {waiting, []string{"approve deploy", "suspend"}, []string{"approve deploy"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSequence(NewEntry(row.sj), row.sj, nil, testTime)
			require.Equal(t, row.want, actionIDs(s.Actions))
			var steps []string
			for i := range s.Steps {
				steps = append(steps, actionIDs(s.Steps[i].Actions)...)
			}
			require.Equal(t, row.steps, steps)
		})
	}
}

func TestActionsThatStopWorkAskForTheName(t *testing.T) {
	immediately := testbuilder.SequentialJob("etl", "a").Step("load").SuspendImmediately().Obj()
	immediately.Spec.Suspend = false
	session := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "a"}, Status: v1alpha1.AgenticSessionStatus{Phase: v1alpha1.SessionRunning}}
	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "a"}, Spec: v1alpha1.WorkerPoolSpec{Replicas: new(int32(3))}}
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "a"}}
	for name, row := range map[string]struct {
		actions []Action
		want    []string
	}{
		"sequence": {NewSequence(NewEntry(immediately), immediately, nil, testTime).Actions, []string{"suspend"}},
		"session":  {NewSession(NewEntry(session), session, testTime).Actions, []string{"stop"}},
		"pool":     {NewPool(NewEntry(pool), pool, nil, &Past{}, testTime).Actions, []string{"drain 2", "restart"}},
		"queue":    {DeadLetterActions(NewEntry(queue)), []string{"purge"}},
	} {
		t.Run(name, func(t *testing.T) {
			asking := slices.DeleteFunc(slices.Clone(row.actions), func(a Action) bool { return !a.Destroys || a.Confirm == "" })
			require.Equal(t, row.want, actionIDs(asking))
		})
	}
}

func TestCommandLineCanBePasted(t *testing.T) {
	for want, args := range map[string][]string{
		"kubectl yardmaster --context=dev seq rerun --from=load -n a etl":  {"seq", "rerun", "--from=load", "--namespace=a", "--", "etl"},
		`kubectl yardmaster --context=dev seq rerun '--from=it'\''s' -n a`: {"seq", "rerun", "--from=it's", "--namespace=a"},
		`kubectl yardmaster --context=dev x '$(rm -rf /)' ''`:              {"x", "$(rm -rf /)", ""},
	} {
		require.Equal(t, want, CommandLine([]string{"--context=dev"}, args))
	}
}

func TestAnObjectThatWorksWithAProblemHasTheStateOfTheProblem(t *testing.T) {
	conditions := func(kind string, status metav1.ConditionStatus) v1alpha1.ObservedStatus {
		return v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}, {Type: kind, Status: status, Reason: kind}}}
	}
	for want, object := range map[string]any{
		v1alpha1.ConditionScalingLimited:   &v1alpha1.WorkerPool{Status: v1alpha1.WorkerPoolStatus{ObservedStatus: conditions(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue)}},
		v1alpha1.ReasonDeadLetters:         &v1alpha1.Queue{Status: v1alpha1.QueueStatus{Dead: new(int64(1)), ObservedStatus: conditions(v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue)}},
		v1alpha1.ConditionLastRunSucceeded: &v1alpha1.Schedule{Status: v1alpha1.ScheduleStatus{ObservedStatus: conditions(v1alpha1.ConditionLastRunSucceeded, metav1.ConditionFalse)}},
		v1alpha1.ReasonReady:               &v1alpha1.WorkerPool{Status: v1alpha1.WorkerPoolStatus{ObservedStatus: conditions(v1alpha1.ConditionScalingLimited, metav1.ConditionFalse)}},
	} {
		e := NewEntry(object)
		require.True(t, e.Status == want && (e.Level == LevelGood) != e.NeedsAttention, "%+v, want status %s", e, want)
	}
}

func TestOverviewListsDecisionsFirstThenTheLatestProblem(t *testing.T) {
	entry := func(name string, minutes int, asks bool) *Entry {
		return &Entry{Kind: Sequences, Namespace: "a", Name: name, Since: at(minutes).Time, NeedsAttention: true, Asks: asks}
	}
	state := &State{Entries: map[*Kind][]*Entry{Sequences: {entry("old", -50, false), entry("ask", -90, true), entry("new", -5, false), {Kind: Sequences, Name: "fine"}}}}
	var names []string
	for _, e := range NewOverview(state, testTime).Attention {
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"ask", "new", "old"}, names)
}

func TestOverviewIsBounded(t *testing.T) {
	state := &State{Entries: map[*Kind][]*Entry{}}
	for i := range 5000 {
		state.Entries[Sequences] = append(state.Entries[Sequences], &Entry{Kind: Sequences, Namespace: string(rune('a' + i%26)), NeedsAttention: true, Level: LevelProblem, Finished: testTime})
	}
	o := NewOverview(state, testTime)
	require.True(t, len(o.Attention) == maxAttention && o.MoreAttention == 5000-maxAttention && len(o.Series) <= maxSeries && o.Failed == 5000,
		"%d and %d more, %d failed, %d series", len(o.Attention), o.MoreAttention, o.Failed, len(o.Series))
}

func TestTodayBeginsAtMidnight(t *testing.T) {
	state := &State{Entries: map[*Kind][]*Entry{Sequences: {
		{Kind: Sequences, Name: "yesterday", Finished: testTime.Add(-13 * time.Hour), Level: LevelGood}, {Kind: Sequences, Name: "today", Finished: testTime.Add(-11 * time.Hour), Level: LevelGood}, {Kind: Sequences, Name: "never"},
	}}}
	o := NewOverview(state, testTime)
	require.True(t, o.Completed == 1, "%d completed", o.Completed)
}

func TestListsShowPagesOfWhatMatches(t *testing.T) {
	state := &State{Entries: map[*Kind][]*Entry{}}
	for i := range 250 {
		sj := testbuilder.SequentialJob("etl-"+string(rune('a'+i%26)), "a").Obj()
		state.Entries[Sequences] = append(state.Entries[Sequences], NewEntry(sj))
	}
	for name, row := range map[string]struct {
		query             Query
		rows, page, pages int
	}{
		"first":       {Query{}, 100, 1, 3},
		"last":        {Query{Page: 3}, 50, 3, 3},
		"beyond":      {Query{Page: 9}, 50, 3, 3},
		"filtered":    {Query{Text: "ETL-B"}, 10, 1, 1},
		"no match":    {Query{Text: "zz9"}, 0, 1, 1},
		"by status":   {Query{Text: "pending"}, 100, 1, 3},
		"by negative": {Query{Page: -1}, 100, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewList(state, Sequences, row.query, testTime)
			require.True(t, len(l.Rows) == row.rows && l.Query.Page == row.page && l.Pages == row.pages, "%d rows, %+v", len(l.Rows), l.Query)
		})
	}
}

func TestChartHasGapsWhereAValueIsUnknown(t *testing.T) {
	samples := []Sample{{Time: testTime, Backlog: new(10.0)}, {Time: testTime.Add(time.Minute)}, {Time: testTime.Add(2 * time.Minute), Backlog: new(5.0)}}
	c := newChart("Backlog", samples, ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }})
	want := "M0 0M600 60"
	require.True(t, c.Lines[0].Path == want && c.Lines[0].Last == "5" && c.Max == "10", "%+v, want the path %s", c, want)
	c = newChart("Backlog", samples[:1], ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }})
	require.True(t, len(c.Lines) == 0, "one sample gives %v", c)
}

func TestUnknownIsNotZero(t *testing.T) {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	for _, fact := range NewQueue(NewEntry(q), q, nil, &Past{}).Facts {
		require.True(t, fact.Value == Unknown, "%s is %s", fact.Name, fact.Value)
	}
}

func TestStaleJobsAreGroupedByOwnerAndReasonZombiesFirst(t *testing.T) {
	single := []byte(`{"kind":"JobReport","metadata":{"namespace":"a"},"status":{"summary":{"total":3,"suspicious":1,"zombie":2},"findings":[
		{"name":"x","category":"Suspicious","reason":"NeverStarted"},
		{"name":"y-1","category":"Zombie","reason":"NoReadyPods","owner":{"kind":"CronJob","name":"y"}},
		{"name":"y-2","category":"Zombie","reason":"NoReadyPods","owner":{"kind":"CronJob","name":"y"},"next":"kubectl delete job y-2"}]}}`)
	list := []byte(`{"kind":"JobReportList","items":[` + string(single) + `]}`)
	for name, output := range map[string][]byte{"of a namespace": single, "of all namespaces": list} {
		t.Run(name, func(t *testing.T) {
			s := NewStale(&Scope{Namespaces: []string{"a"}}, [][]byte{output}, "", testTime)
			require.True(t, s.Problem == "" && s.Summary == "3 Jobs: 1 suspicious, 2 zombie" && len(s.Groups) == 2 && s.Groups[0].Owner == "CronJob/y" && len(s.Groups[0].Jobs) == 2,
				"%+v", s)
		})
	}
}

func TestTextIsCleanAndBounded(t *testing.T) {
	got := cleanText("a\tb\r\n  c\x1b[2J\n" + strings.Repeat("x", maxTextBytes))
	require.True(t, strings.HasPrefix(got, "a b\n  c\uFFFD[2J\n") && strings.Contains(got, "more bytes"), "%.60q … %q", got, got[len(got)-40:])
	require.Equal(t, "  red", CleanLogLine("  \x1b[31mred\x1b[0m\t"))
}

func TestSlimObjectsKeepNoPodTemplatesSecretsOrForeignAnnotations(t *testing.T) {
	sj := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	sj.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", v1alpha1.AnnotationApproval: "{}"}
	sj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	sj.Spec.Containers[0].Command = []string{"sh"}
	Slim(sj)
	require.True(t, len(sj.Annotations) == 1 && sj.ManagedFields == nil && sj.Spec.Template == nil && sj.Spec.Containers[0].Command == nil && sj.Spec.Containers[0].Name == "load",
		"%+v", sj)
}

func TestAScheduleListsItsRunsWithTheirDurations(t *testing.T) {
	s := &v1alpha1.Schedule{}
	s.Name, s.Namespace, s.UID = "nightly", "a", "1"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{}
	s.Status.ActiveRuns = []v1alpha1.ScheduledRun{{Name: "unreadable", RerunID: "again"}}
	run := func(name string, created int, owner *v1alpha1.Schedule, finish *metav1.Time) *Entry {
		sj := &v1alpha1.SequentialJob{}
		sj.Name, sj.Namespace, sj.CreationTimestamp = name, "a", *at(created)
		sj.Status.StartTime, sj.Status.CompletionTime = at(created), finish
		sj.Annotations = map[string]string{v1alpha1.AnnotationScheduledTime: at(created).UTC().Format(time.RFC3339)}
		sj.OwnerReferences = decision.ControllerReferences("Schedule", owner)
		return NewEntry(sj)
	}
	foreign := s.DeepCopy()
	foreign.UID = "2" // of a Schedule that had the name before
	state := &State{Entries: map[*Kind][]*Entry{Sequences: {run("first", -60, s, at(-50)), run("second", -30, s, nil), run("other", -10, foreign, nil)}}}
	var got []string
	for _, run := range NewSchedule(NewEntry(s), s, state, testTime).Runs {
		got = append(got, fmt.Sprintf("%s %s %s%s", run.Name, run.Due.Sub(run.Start), run.Finish.Format("15:04"), run.Request))
	}
	want := []string{"second 0s 00:00", "first 0s " + at(-50).Format("15:04"), "unreadable 0s 00:00again"}
	require.Equal(t, want, got)
}

func editEvent(t *testing.T, path, removed, added string) string {
	input, err := json.Marshal(map[string]string{"file_path": path, "old_string": removed, "new_string": added})
	require.NoError(t, err)
	event, err := json.Marshal(&agentprofile.Event{Type: agentprofile.EventToolCall, Tool: &agentprofile.Tool{Name: "Edit", Input: input}})
	require.NoError(t, err)
	return "run 1, attempt 2 | " + string(event) + "\n"
}

func sessionWith(result *v1alpha1.SessionResult) *v1alpha1.AgenticSession {
	return &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "a"}, Status: v1alpha1.AgenticSessionStatus{Result: result}}
}

func TestChangesOfAnAgentAreGroupedByFile(t *testing.T) {
	log := editEvent(t, "a.go", "x := 1\n", "x := 2\ny := 3\n") + "run 1, attempt 2 | no event\n" + `run 1, attempt 2 | {"type":"toolCall","tool":{"name":"bash","input":{"command":"ls"}}}` + "\n" +
		editEvent(t, "b.go", "", "\tnew\x1b[2J") + editEvent(t, "a.go", "z", "") + `{"type":"toolCall"}` + "\n{\n"
	c := NewChanges(NewEntry(sessionWith(nil)), []byte(log), "")
	want := []FileChange{
		{Path: "a.go", Added: 2, Removed: 2, Lines: []DiffLine{{Removed: true, Text: "x := 1"}, {Added: true, Text: "x := 2"}, {Added: true, Text: "y := 3"}, {Text: "…"}, {Removed: true, Text: "z"}}},
		{Path: "b.go", Added: 1, Lines: []DiffLine{{Added: true, Text: "    new\uFFFD[2J"}}},
	}
	require.Equal(t, want, c.Files)
}

func TestChangesAreBounded(t *testing.T) {
	var log strings.Builder
	for i := range maxChangedFiles + 10 {
		log.WriteString(editEvent(t, fmt.Sprintf("%03d.go", i), "", strings.Repeat("x", 60<<10)))
	}
	c := NewChanges(NewEntry(sessionWith(nil)), []byte(log.String()), "")
	size := 0
	for _, file := range c.Files {
		for _, line := range file.Lines {
			size += len(line.Text)
		}
	}
	require.True(t, len(c.Files) == maxChangedFiles && c.More == 10 && size <= maxChangeBytes && c.Files[maxChangedFiles-1].More == 1, "%d bytes", size)
}

func TestRepositoriesHaveLinksToPullRequestsOfTheWebOnly(t *testing.T) {
	for address, link := range map[string]string{
		"https://git.example/shop/pull/7": "https://git.example/shop/pull/7", "http://git.local:3000/a/pulls/1": "http://git.local:3000/a/pulls/1",
		"javascript:alert(1)": "", "data:text/html,x": "", "//git.example": "", "https:": "", "https://me:secret@git.example": "", "https://git.example/\u202e": "", "/shop": "", "": "", "https://%zz": "",
	} {
		s := sessionWith(&v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{{Name: "shop", Commit: "0123456789abcdef", PullRequestURL: address}}})
		r := NewSession(NewEntry(s), s, testTime).Repositories[0]
		require.True(t, r.Link == link && r.Commit == "0123456789ab" && r.State == "not pushed", "%q: %+v", address, r)
	}
}

func TestRepositoryThatWasNotPushedSaysWhy(t *testing.T) {
	s := sessionWith(&v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{{Name: "shop", Error: "rejected"}, {Name: "web", Pushed: true, Branch: "fix"}}})
	repositories := NewSession(NewEntry(s), s, testTime).Repositories
	r := repositories[0]
	require.True(t, r.State == "failed" && r.Level == LevelProblem && r.Error == "rejected" && r.Branch == Unknown, "%+v", r)
	r = repositories[1]
	require.True(t, r.State == "pushed" && r.Level == LevelGood && r.Branch == "fix", "%+v", r)
}

func pointsAt(value float64, minutes ...int) []Point {
	var points []Point
	for _, minute := range minutes {
		points = append(points, Point{Time: at(minute).Time, Value: value})
	}
	return points
}

func TestChartsBeginWithTheHistoryOfPrometheus(t *testing.T) {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "a"}}
	e := NewEntry(q)
	past := NewPast(e, map[string][]Point{"ready": pointsAt(7, -60, -59, -58), "in_flight": pointsAt(2, -60, -59, -58), "other": pointsAt(9, -60)}, time.Hour, time.Minute)
	seen := []Sample{{Time: at(-59).Time, Backlog: new(float64(99))}, {Time: at(-2).Time, Backlog: new(float64(3))}, {Time: at(0).Time, Backlog: new(float64(4))}}
	chart := NewQueue(e, q, seen, past).Backlog
	require.True(t, chart.Begin.Equal(at(-60).Time) && chart.Max == "7" && chart.Lines[0].Last == "4" && chart.Lines[1].Last == Unknown, "%+v", chart)
}

func TestTimesWithoutValuesInPrometheusAreGaps(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "a"}}
	e := NewEntry(wp)
	past := NewPast(e, map[string][]Point{"ready": pointsAt(3, -60, -59, -30, -29), "backlog": pointsAt(5, -60)}, time.Hour, time.Minute)
	pool := NewPool(e, wp, nil, past, testTime)
	path := pool.Workers.Lines[0].Path
	require.True(t, strings.Count(path, "M") == 2, "the line of ready workers has no gap: %s", path)
	require.True(t, len(past.Samples) == 5 && *past.Samples[0].Backlog == 5 && past.Samples[2].Ready == nil, "%+v", past.Samples)
}

// scheduleWithRuns returns a Schedule, and a run for each outcome, a minute long and an hour after the one before.
func scheduleWithRuns(outcomes string) *State {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "a", UID: "1"}}
	s.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Scheduled"}, {Type: v1alpha1.ConditionLastRunSucceeded, Status: metav1.ConditionFalse, Reason: "RunFailed"},
	}
	state := &State{Entries: map[*Kind][]*Entry{Schedules: {NewEntry(s)}}}
	for i, outcome := range outcomes {
		sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("nightly-%d", i), Namespace: "a", OwnerReferences: decision.ControllerReferences("Schedule", s)}}
		begin := testTime.Add(time.Duration(i-len(outcomes)) * time.Hour)
		sj.Status.Run, sj.Status.StartTime = 1, new(metav1.NewTime(begin))
		sj.Status.Phase = map[rune]v1alpha1.SequentialJobPhase{'f': v1alpha1.PhaseFailed, 's': v1alpha1.PhaseCompleted, 'r': v1alpha1.PhaseRunning}[outcome]
		if outcome != 'r' {
			sj.Status.CompletionTime = new(metav1.NewTime(begin.Add(time.Minute)))
		}
		state.Entries[Sequences] = append(state.Entries[Sequences], NewEntry(sj))
	}
	return state
}

func TestOnlyTheLatestEndedRunOfAScheduleNeedsAttention(t *testing.T) {
	for outcomes, want := range map[string][]string{
		"": {"nightly"}, "s": {"nightly"}, "fff": {"nightly-2"}, "ffr": {"nightly-1"}, "fsf": {"nightly-2"}, "ffs": {"nightly"}, "fr": {"nightly-0"},
	} {
		t.Run(outcomes, func(t *testing.T) {
			var got []string
			for _, need := range NewOverview(scheduleWithRuns(outcomes), testTime).Attention {
				got = append(got, need.Name)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestBarsShowTheRunsOfASeriesOldestFirst(t *testing.T) {
	state := scheduleWithRuns("sf")
	key := SeriesOf(state.Entries[Schedules][0])
	gone := Run{Entry: &Entry{Kind: Sequences, Namespace: "a", Name: "gone", Status: "Completed", Level: LevelGood}, Start: testTime.Add(-5 * time.Hour), Finish: testTime.Add(-5*time.Hour + 8*time.Minute), IsGone: true}
	state.Seen = map[SeriesKey][]Run{key: {gone}}
	var got []string
	for _, bar := range NewBars(state.Runs(key), testTime) {
		got = append(got, fmt.Sprintf("%s %d %s", bar.Name, bar.Height, bar.Level))
	}
	require.Equal(t, []string{"gone 8 good", "nightly-0 1 good", "nightly-1 1 problem"}, got)
	o := NewOverview(state, testTime)
	require.True(t, len(o.Series) == 1 && o.Series[0].Of.Name == "nightly" && o.Series[0].Took == "1m0s", "series %+v", o.Series)
}

func TestSpendingIsABoundIfAnAttemptReportsNoCost(t *testing.T) {
	cost := func(text string) *v1alpha1.Number { return new(v1alpha1.Number(text)) }
	for want, costs := range map[string][]*v1alpha1.Number{
		"$0.00": nil, "$1.75": {cost("1.5"), cost("0.25")}, "at least $1.50": {cost("1.5"), nil}, Unknown: {nil, nil}, "at least $2.00": {cost("2"), cost("?")},
	} {
		s := &v1alpha1.AgenticSession{}
		for _, c := range costs {
			s.Status.Attempts = append(s.Status.Attempts, v1alpha1.SessionAttempt{CostUSD: c, JobAttempt: v1alpha1.JobAttempt{Times: v1alpha1.Times{CompletionTime: at(-1)}}})
		}
		s.Status.Attempts = append(s.Status.Attempts, v1alpha1.SessionAttempt{CostUSD: cost("9"), JobAttempt: v1alpha1.JobAttempt{Times: v1alpha1.Times{CompletionTime: at(-24 * 60)}}})
		state := &State{Entries: map[*Kind][]*Entry{Sessions: {NewEntry(s)}}}
		require.Equal(t, want, NewOverview(state, testTime).Spent)
	}
}

func TestASearchFindsObjectsOfAllKindsInANamespace(t *testing.T) {
	state := &State{Entries: map[*Kind][]*Entry{}}
	for _, kind := range Kinds {
		for _, ns := range []string{"a", "b"} {
			state.Entries[kind] = append(state.Entries[kind], &Entry{Kind: kind, Namespace: ns, Name: "mail-" + kind.Path}, &Entry{Kind: kind, Namespace: ns, Name: "other"})
		}
	}
	for _, row := range []struct {
		only, text string
		want       int
	}{{"", "mail", 10}, {"a", "mail", 5}, {"", "MAIL-queue", 2}, {"", "", 0}, {"", "nothing", 0}, {"c", "mail", 0}} {
		got := 0
		for _, found := range NewSearch(state.In(row.only), row.text).Kinds {
			got += len(found.Rows)
		}
		require.True(t, got == row.want, "%q in %q: %d objects, want %d", row.text, row.only, got, row.want)
	}
	got := state.Namespaces()
	require.True(t, slices.Equal(got, []string{"a", "b"}), "namespaces %v", got)
}

func TestALineOfASessionsLogIsATurn(t *testing.T) {
	for line, want := range map[string]*Turn{
		`run 1, attempt 1 | {"type":"text","text":"I fix it."}`:                                                     {Kind: "text", Text: "I fix it."},
		`r1-a1 | {"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test | tee {x"}}}`:                 {Kind: "call", Head: "Bash go test | tee {x"},
		`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"a.go","old_string":"x","new_string":"y"}}}`: {Kind: "call", Head: "Edit a.go +1 −1", Lines: []DiffLine{{Removed: true, Text: "x"}, {Added: true, Text: "y"}}},
		`{"type":"toolResult","failed":true,"text":"no\u001b[31m"}`:                                                 {Kind: "problem", Text: "no\uFFFD[31m"},
		`{"type":"toolResult"}`:                      nil,
		`{"type":"usage","usage":{"inputTokens":1}}`: nil,
		`{"type":"usage","total":true,"usage":{"inputTokens":1,"outputTokens":2},"costUSD":0.5}`: {Kind: "note", Text: "1 tokens in, 2 out, $0.50 so far"},
		`{"type":"error","text":"overloaded"}`:                                                   {Kind: "problem", Head: "Error", Text: "overloaded"},
		`{"type":"result","text":"done"}`:                                                        {Kind: "note", Text: "Finished"},
		`{"type":"later","text":"unknown"}`:                                                      {Kind: "note", Text: "unknown"},
		`plain {"type":"text"}`:                                                                  {Kind: "note", Text: `plain {"type":"text"}`},
		`{"type":`:                                                                               {Kind: "note", Text: `{"type":`},
	} {
		diff := cmp.Diff(want, NewTurn(line))
		require.True(t, diff == "", "%s (-want +got):\n%s", line, diff)
	}
}

func TestReportsReadTheNamespacesAndLabelsOfThePages(t *testing.T) {
	team, err := labels.Parse("team in (data,web)")
	require.NoError(t, err)
	report := []string{"report", "--output=json", "--fail-on=never"}
	with := func(flags ...string) []string { return append(append([]string{}, report...), flags...) }
	for want, row := range map[string]struct {
		scope    Scope
		commands [][]string
	}{
		"all namespaces": {Scope{Selector: labels.Everything()}, [][]string{with("--all-namespaces")}},
		"namespace a":    {Scope{Namespaces: []string{"a"}}, [][]string{with("--namespace=a")}},
		"namespaces a, b, labels team in (data,web)": {Scope{[]string{"a", "b"}, team}, [][]string{with("--namespace=a", "--selector=team in (data,web)"), with("--namespace=b", "--selector=team in (data,web)")}},
		"all namespaces, labels team in (data,web)":  {Scope{Selector: team}, [][]string{with("--all-namespaces", "--selector=team in (data,web)")}},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, row.scope.String())
			require.Equal(t, row.commands, StaleCommands(&row.scope))
		})
	}
}

func TestStateOfAKindIsThatOfAllItsNamespaces(t *testing.T) {
	synced, loading := WatchState{Synced: true}, WatchState{}
	denied := WatchState{Denied: true, Problem: "not permitted to list queues in namespace b"}
	lost := WatchState{Synced: true, Problem: "connection lost", Lost: testTime}
	for title, row := range map[string]struct {
		states []WatchState
		want   WatchState
	}{
		"all read":                {[]WatchState{synced, synced}, synced},
		"one still loads":         {[]WatchState{synced, loading}, loading},
		"one is denied":           {[]WatchState{synced, denied}, WatchState{Synced: true, Problem: denied.Problem}},
		"all are denied":          {[]WatchState{denied, denied}, WatchState{Synced: true, Denied: true, Problem: denied.Problem}},
		"the connection was lost": {[]WatchState{synced, lost}, lost},
		"only one, as it is":      {[]WatchState{denied}, denied},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, MergeStates(row.states)) })
	}
}
