package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Expectation is what a rule says about a cell. The zero value says nothing, and fails the cell.
type Expectation[O any] struct {
	outcome O
	isGiven bool
	// exclusion is why the cell does not exist.
	exclusion string
}

// Expect returns the expectation of an outcome.
func Expect[O any](outcome O) Expectation[O] { return Expectation[O]{outcome: outcome, isGiven: true} }

// Exclude returns the expectation of a cell that cannot exist, or has a known defect. The reason completes a sentence
// that ends with "because".
func Exclude[O any](reason string) Expectation[O] { return Expectation[O]{exclusion: reason} }

// Matrix runs each fault in each state, and fails the cells whose outcome is not the expected one. The title of a cell
// is a sentence from the actor, the fault, the state and the expected outcome, such as "a worker that hangs, in the
// last attempt: one dead letter". Cells that the rule excludes are logged with their reasons.
//
// All cells run at the same time. They are no parallel tests, because those are limited by the number of processors, and
// most cells wait.
func Matrix[S, O any](
	t *testing.T, actor string, faults []Fault, states []S, rule func(Fault, S) Expectation[O], run func(*testing.T, Fault, S) O,
) {
	t.Helper()
	cells, exclusions := plan(actor, faults, states, rule)
	if len(exclusions) > 0 {
		t.Logf("excluded:\n%s", strings.Join(exclusions, "\n"))
	}
	var running sync.WaitGroup
	for _, c := range cells {
		running.Go(func() {
			t.Run(c.title, func(t *testing.T) {
				if !c.want.isGiven {
					t.Fatal(noExpectation)
				}
				if problem := c.compare(run(t, c.fault, c.state)); problem != "" {
					t.Error(problem)
				}
			})
		})
	}
	running.Wait()
}

const noExpectation = "the rule says nothing about this cell"

// cell is a fault in a state.
type cell[S, O any] struct {
	title string
	fault Fault
	state S
	want  Expectation[O]
}

// plan returns the cells to run, and a line for each cell that the rule excludes.
func plan[S, O any](
	actor string, faults []Fault, states []S, rule func(Fault, S) Expectation[O],
) (cells []cell[S, O], exclusions []string) {
	for _, fault := range faults {
		for _, state := range states {
			want := rule(fault, state)
			title := fmt.Sprintf("%s that %s, %v: ", actor, fault, state)
			switch {
			case want.exclusion != "":
				exclusions = append(exclusions, title+"excluded, because "+want.exclusion)
				continue
			case want.isGiven:
				title += fmt.Sprint(want.outcome)
			default:
				title += noExpectation
			}
			cells = append(cells, cell[S, O]{title, fault, state, want})
		}
	}
	return cells, exclusions
}

// compare describes how an outcome differs from the expected one; it returns "" if it does not.
func (c *cell[S, O]) compare(got O) string {
	if diff := cmp.Diff(c.want.outcome, got); diff != "" {
		return "the outcome differs (-want +got):\n" + diff
	}
	return ""
}
