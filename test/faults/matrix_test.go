package faults

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func titlesOf[S, O any](cells []cell[S, O]) (titles []string) {
	for _, c := range cells {
		titles = append(titles, c.title)
	}
	return titles
}

func TestAMatrixHasEachFaultInEachState(t *testing.T) {
	rule := func(fault Fault, state string) Expectation[int] {
		switch {
		case fault == Hangs:
			return Expect(len(state))
		case state == "idle":
			return Exclude[int]("an idle worker has no job to lose")
		}
		return Expectation[int]{} // the rule was forgotten
	}
	cells, exclusions := plan("a worker", []Fault{Hangs, Disappears}, []string{"idle", "busy!"}, rule)
	want := []string{
		"a worker that hangs, idle: 4",
		"a worker that hangs, busy!: 5",
		"a worker that disappears, busy!: the rule says nothing about this cell",
	}
	if diff := cmp.Diff(want, titlesOf(cells)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a worker that disappears, idle: excluded, because an idle worker has no job to lose"}, exclusions); diff != "" {
		t.Errorf("exclusions (-want +got):\n%s", diff)
	}
}

func TestAnUnexpectedOutcomeIsAProblem(t *testing.T) {
	type outcome struct{ DeadLetters int }
	c := cell[string, outcome]{want: Expect(outcome{1})}
	if problem := c.compare(outcome{1}); problem != "" {
		t.Errorf("the expected outcome is a problem: %s", problem)
	}
	if problem := c.compare(outcome{2}); !strings.Contains(problem, "DeadLetters: 1") || !strings.Contains(problem, "DeadLetters: 2") {
		t.Errorf("the problem is %q, should show both outcomes", problem)
	}
}

func TestAllCellsRunAtTheSameTime(t *testing.T) {
	states := make([]string, 50)
	faults := Of(Process)
	var started sync.WaitGroup
	started.Add(len(faults) * len(states))
	Matrix(t, "a worker", faults, states, func(Fault, string) Expectation[bool] { return Expect(true) },
		func(*testing.T, Fault, string) bool {
			started.Done()
			started.Wait() // for the other cells
			return true
		})
}

func TestEachFaultHasActors(t *testing.T) {
	if got, want := len(Of(Process, Server, Object, Clock)), len(faults); got != want {
		t.Errorf("%d of %d faults have an actor", got, want)
	}
	want := []Fault{Disappears, ComesBackWithOldState, IsReplaced, HasExtremeValues, HasClockThatJumpsAhead, HasClockThatJumpsBack}
	if diff := cmp.Diff(want, Of(Object, Clock)); diff != "" {
		t.Errorf("faults of an object that reads a clock (-want +got):\n%s", diff)
	}
}
