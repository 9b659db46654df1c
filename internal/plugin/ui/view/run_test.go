package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

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
	if got := state.Namespaces(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("namespaces %v", got)
	}
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
		if diff := cmp.Diff(want, NewTurn(line)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}
