package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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

func TestTimelineIsBetweenTheStartAndTheEndOfTheRun(t *testing.T) {
	sj := failedSequence()
	s := NewSequence(NewEntry(sj), sj, nil, testTime)
	var bars [][2]float64
	for _, step := range s.Steps {
		bars = append(bars, [2]float64{step.Offset, step.Length})
	}
	require.Equal(t, [][2]float64{{0, 50}, {50, 50}, {0, 0}}, bars)
}

func TestTimelineOfARunningSequenceEndsNow(t *testing.T) {
	sj := failedSequence()
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseRunning, nil
	sj.Status.Steps[1].Phase, sj.Status.Steps[1].CompletionTime = v1alpha1.StepRunning, nil
	s := NewSequence(NewEntry(sj), sj, nil, testTime)
	if load := s.Steps[1]; load.Offset+load.Length < 99.9 || load.Length < 66 {
		t.Errorf("bar from %f, length %f", load.Offset, load.Length)
	}
}

func TestStepsOfAnEarlierRunHaveNoBar(t *testing.T) {
	sj := failedSequence()
	sj.Status.Run = 2
	s := NewSequence(NewEntry(sj), sj, nil, testTime)
	if step := s.Steps[0]; step.Length != 0 || !slices.Contains(step.Remarks, "from run 1") {
		t.Errorf("length %f, remarks %v", step.Length, step.Remarks)
	}
}

func TestActionsOfASequenceDependOnItsState(t *testing.T) {
	waiting := testbuilder.SequentialJob("etl", "a").Step("deploy").Obj()
	waiting.Status = v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseSuspended, RunStatus: v1alpha1.RunStatus{Run: 1}, Steps: []v1alpha1.StepStatus{{Name: "deploy", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired}}}}}
	suspended := failedSequence()
	suspended.Spec.Suspend = true
	for name, row := range map[string]struct {
		sj    *v1alpha1.SequentialJob
		want  []string
		steps []string
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
		if e := NewEntry(object); e.Status != want || (e.Level == LevelGood) == e.NeedsAttention {
			t.Errorf("status %s, level %s, needs attention: %t; want status %s", e.Status, e.Level, e.NeedsAttention, want)
		}
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
	if len(o.Attention) != maxAttention || o.MoreAttention != 5000-maxAttention || len(o.Series) > maxSeries || o.Failed != 5000 {
		t.Errorf("%d and %d more, %d failed, %d series", len(o.Attention), o.MoreAttention, o.Failed, len(o.Series))
	}
}

func TestTodayBeginsAtMidnight(t *testing.T) {
	state := &State{Entries: map[*Kind][]*Entry{Sequences: {
		{Kind: Sequences, Name: "yesterday", Finished: testTime.Add(-13 * time.Hour), Level: LevelGood}, {Kind: Sequences, Name: "today", Finished: testTime.Add(-11 * time.Hour), Level: LevelGood}, {Kind: Sequences, Name: "never"},
	}}}
	if o := NewOverview(state, testTime); o.Completed != 1 {
		t.Errorf("%d completed", o.Completed)
	}
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
			if len(l.Rows) != row.rows || l.Query.Page != row.page || l.Pages != row.pages {
				t.Errorf("%d rows, page %d of %d", len(l.Rows), l.Query.Page, l.Pages)
			}
		})
	}
}

func TestChartHasGapsWhereAValueIsUnknown(t *testing.T) {
	samples := []Sample{{Time: testTime, Backlog: new(10.0)}, {Time: testTime.Add(time.Minute)}, {Time: testTime.Add(2 * time.Minute), Backlog: new(5.0)}}
	c := newChart("Backlog", samples, ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }})
	if want := "M0 0M600 60"; c.Lines[0].Path != want || c.Lines[0].Last != "5" || c.Max != "10" {
		t.Errorf("path %s, want %s; last %s, max %s", c.Lines[0].Path, want, c.Lines[0].Last, c.Max)
	}
	if c := newChart("Backlog", samples[:1], ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }}); len(c.Lines) != 0 {
		t.Errorf("one sample gives %v", c)
	}
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
			if s.Problem != "" || s.Summary != "3 Jobs: 1 suspicious, 2 zombie" || len(s.Groups) != 2 || s.Groups[0].Owner != "CronJob/y" || len(s.Groups[0].Jobs) != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestTextIsCleanAndBounded(t *testing.T) {
	if got := cleanText("a\tb\r\n  c\x1b[2J\n" + strings.Repeat("x", maxTextBytes)); !strings.HasPrefix(got, "a b\n  c\uFFFD[2J\n") || !strings.Contains(got, "more bytes") {
		t.Errorf("%.60q … %q", got, got[len(got)-40:])
	}
	require.Equal(t, "  red", CleanLogLine("  \x1b[31mred\x1b[0m\t"))
}

func TestSlimObjectsKeepNoPodTemplatesSecretsOrForeignAnnotations(t *testing.T) {
	sj := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	sj.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", v1alpha1.AnnotationApproval: "{}"}
	sj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	sj.Spec.Containers[0].Command = []string{"sh"}
	Slim(sj)
	if len(sj.Annotations) != 1 || sj.ManagedFields != nil || sj.Spec.Template != nil || sj.Spec.Containers[0].Command != nil || sj.Spec.Containers[0].Name != "load" {
		t.Errorf("%+v", sj)
	}
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
	state := &State{Entries: map[*Kind][]*Entry{Sequences: {
		run("first", -60, s, at(-50)), run("second", -30, s, nil), run("foreign", -10, foreign, nil),
	}}}
	var got []string
	for _, run := range NewSchedule(NewEntry(s), s, state, testTime).Runs {
		got = append(got, fmt.Sprintf("%s %s %s%s", run.Name, run.Due.Sub(run.Start), run.Finish.Format("15:04"), run.Request))
	}
	want := []string{"second 0s 00:00", "first 0s " + at(-50).Format("15:04"), "unreadable 0s 00:00again"}
	require.Equal(t, want, got)
}
