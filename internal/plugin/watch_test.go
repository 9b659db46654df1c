package plugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/require"
)

type sequenceUpdate = follow.ObjectUpdate[*v1alpha1.SequentialJob]

// newTestEnvironment returns an environment with a fixed clock.
func newTestEnvironment() *environment {
	return &environment{now: func() time.Time { return testTime }}
}

// runningSequence returns failedSequence before its failure.
func runningSequence(name string) *v1alpha1.SequentialJob {
	sj := failedSequence(name)
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseRunning, nil
	sj.Status.Steps[1].Phase = v1alpha1.StepRunning
	return sj
}

func completedSequence(name string) *v1alpha1.SequentialJob {
	sj := failedSequence(name)
	sj.Status.Phase = v1alpha1.PhaseCompleted
	sj.Status.Steps[1].Phase = v1alpha1.StepSucceeded
	return sj
}

// wantFinished checks whether a view has finished, and with which error.
func wantFinished(t *testing.T, view interface{ isFinished() (bool, error) }, want bool, wantErr error) {
	t.Helper()
	if finished, err := view.isFinished(); finished != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Errorf("finished %t, %v; want %t, %v", finished, err, want, wantErr)
	}
}

func TestWatchingOneSequenceEnds(t *testing.T) {
	rerun := failedSequence("etl")
	rerun.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	impossible := failedSequence("etl")
	impossible.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: "no-such-step"}
	requested := failedSequence("etl")
	requested.Generation, requested.Spec.Rerun = 2, rerun.Spec.Rerun

	another := completedSequence("etl")
	another.UID = "another"

	for name, row := range map[string]struct {
		latest  *v1alpha1.SequentialJob
		updates []sequenceUpdate
		want    bool
		wantErr error
	}{
		"does not end while it runs":                        {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl")}}, false, nil},
		"ends when it completes":                            {runningSequence("etl"), []sequenceUpdate{{Object: completedSequence("etl")}}, true, nil},
		"ends when it fails":                                {runningSequence("etl"), []sequenceUpdate{{Object: failedSequence("etl")}}, true, errUnsuccessful},
		"does not end while a rerun is pending":             {rerun, []sequenceUpdate{{Object: rerun}}, false, nil},
		"ends when the requested rerun is invalid":          {impossible, []sequenceUpdate{{Object: impossible}}, true, errUnsuccessful},
		"does not end for a state before the request":       {requested, []sequenceUpdate{{Object: failedSequence("etl")}}, false, nil},
		"ends when it is deleted after it has completed":    {runningSequence("etl"), []sequenceUpdate{{Object: completedSequence("etl")}, {Object: completedSequence("etl"), Deleted: true}}, true, nil},
		"ends when it is deleted before its end":            {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl"), Deleted: true}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"ends when another object gets its name":            {runningSequence("etl"), []sequenceUpdate{{Object: runningSequence("etl")}, {Object: another}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"ends when it was deleted before the watch started": {runningSequence("etl"), nil, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
	} {
		t.Run(name, func(t *testing.T) {
			v := &objectView[*v1alpha1.SequentialJob]{environment: newTestEnvironment(), kind: sequentialJobKind, latest: row.latest}
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestWatchingSeveralSequencesEnds(t *testing.T) {
	deleted := func(sj *v1alpha1.SequentialJob) sequenceUpdate { return sequenceUpdate{Object: sj, Deleted: true} }
	for name, row := range map[string]struct {
		endless bool
		updates []sequenceUpdate
		want    bool
		wantErr error
	}{
		"never ends if it is endless":                 {true, []sequenceUpdate{{Object: completedSequence("a")}}, false, nil},
		"does not end while one runs":                 {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: runningSequence("b")}}, false, nil},
		"ends when all have completed":                {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: completedSequence("b")}}, true, nil},
		"ends when one has failed":                    {false, []sequenceUpdate{{Object: completedSequence("a")}, {Object: failedSequence("b")}}, true, errUnsuccessful},
		"ends when one has failed and was deleted":    {false, []sequenceUpdate{{Object: failedSequence("a")}, deleted(failedSequence("a")), {Object: completedSequence("b")}}, true, errUnsuccessful},
		"ends when one has completed and was deleted": {false, []sequenceUpdate{{Object: completedSequence("a")}, deleted(completedSequence("a"))}, true, nil},
		"ends when one is deleted before its end":     {false, []sequenceUpdate{{Object: runningSequence("a")}, deleted(runningSequence("a"))}, true, errUnsuccessful},
		"ends when there is no SequentialJob":         {false, nil, true, errors.New("no SequentialJob to wait for")},
	} {
		t.Run(name, func(t *testing.T) {
			v := newListView(newTestEnvironment(), sequentialJobKind)
			v.endless = row.endless
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestEachChangeIsPrintedOnce(t *testing.T) {
	one := &objectView[*v1alpha1.SequentialJob]{environment: newTestEnvironment(), kind: sequentialJobKind, latest: runningSequence("etl")}
	many := newListView(newTestEnvironment(), sequentialJobKind)
	many.showNamespaces = true
	var fromObject, fromList []string
	for _, s := range []sequenceUpdate{{Object: runningSequence("etl")}, {Object: runningSequence("etl")}, {Object: failedSequence("etl")}, {Object: failedSequence("etl"), Deleted: true}} {
		fromObject = append(fromObject, texts(one.applyUpdate(s))...)
		fromList = append(fromList, texts(many.applyUpdate(s))...)
	}
	want := []string{"step extract: Succeeded", "step load: Running", "Running, 1/2 steps", "step load: Failed", "Failed, 1/2 steps"}
	require.Equal(t, want, fromObject)
	for i := range want {
		want[i] = "a/etl " + want[i]
	}
	require.Equal(t, append(want, "a/etl was deleted"), fromList)
}

func TestSequencesThatNeedAttentionAreFirst(t *testing.T) {
	v := newListView(newTestEnvironment(), sequentialJobKind)
	for _, sj := range []*v1alpha1.SequentialJob{completedSequence("backup"), failedSequence("etl")} {
		v.applyUpdate(sequenceUpdate{Object: sj})
	}
	if lines := v.renderLines(0); !strings.HasPrefix(lines[1], "etl") || !strings.HasPrefix(lines[2], "backup") {
		t.Errorf("lines:\n%s", strings.Join(lines, "\n"))
	}
}

func texts(changes []render.Change) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.Text)
	}
	return all
}

func TestTimesOfOtherDaysHaveADate(t *testing.T) {
	now := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.Local)
	for want, change := range map[string]time.Time{
		"12:00:00":            {}, // the status does not say when
		"11:59:00":            now.Add(-time.Minute),
		"2026-03-01 12:00:00": now.AddDate(0, 0, -1),
	} {
		if got := formatTime(change, now); got != want {
			t.Errorf("formatTime(%s) = %q, want %q", change, got, want)
		}
	}
}
