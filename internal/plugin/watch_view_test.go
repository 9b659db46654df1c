package plugin

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

type sight = follow.ObjectUpdate[*v1alpha1.SequentialJob]

// still is an environment at noon.
func still() *environment { return &environment{now: func() time.Time { return noon }} }

// running is failed before it failed.
func running(name string) *v1alpha1.SequentialJob {
	sj := failed(name)
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseRunning, nil
	sj.Status.Steps[1].Phase = v1alpha1.StepRunning
	return sj
}

func completed(name string) *v1alpha1.SequentialJob {
	sj := failed(name)
	sj.Status.Phase = v1alpha1.PhaseCompleted
	sj.Status.Steps[1].Phase = v1alpha1.StepSucceeded
	return sj
}

func TestWhenAWatchOfOneIsOver(t *testing.T) {
	rerun := failed("etl")
	rerun.Spec.Rerun = &v1alpha1.Rerun{ID: "2", From: v1alpha1.RerunFromStart}
	impossible := failed("etl")
	impossible.Spec.Rerun = &v1alpha1.Rerun{ID: "2", From: "no-such-step"}
	fresh := failed("etl")
	fresh.Generation, fresh.Spec.Rerun = 2, rerun.Spec.Rerun

	another := completed("etl")
	another.UID = "another"

	for name, row := range map[string]struct {
		from     *v1alpha1.SequentialJob
		sights   []sight
		want     bool
		wantCode error
	}{
		"not while it runs":                              {running("etl"), []sight{{Object: running("etl")}}, false, nil},
		"when it completed":                              {running("etl"), []sight{{Object: completed("etl")}}, true, nil},
		"when it failed":                                 {running("etl"), []sight{{Object: failed("etl")}}, true, errUnsuccessful},
		"not while a rerun is about to begin":            {rerun, []sight{{Object: rerun}}, false, nil},
		"when a rerun was asked for that cannot be":      {impossible, []sight{{Object: impossible}}, true, errUnsuccessful},
		"not for how it stood before the rerun":          {fresh, []sight{{Object: failed("etl")}}, false, nil},
		"when it went after its end, by how it ended":    {running("etl"), []sight{{Object: completed("etl")}, {Object: completed("etl"), Deleted: true}}, true, nil},
		"when it went before its end, which is an error": {running("etl"), []sight{{Object: running("etl"), Deleted: true}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"when another has its name":                      {running("etl"), []sight{{Object: running("etl")}, {Object: another}}, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
		"when it had gone before the watch began":        {running("etl"), nil, true, errors.New("sequentialjob.yardmaster.dev/etl was deleted")},
	} {
		t.Run(name, func(t *testing.T) {
			v := &objectView[*v1alpha1.SequentialJob]{environment: still(), kind: watchableSequentialJobs(), latest: row.from}
			for _, s := range row.sights {
				v.applyUpdate(s)
			}
			over, err := v.isFinished()
			if over != row.want || (err == nil) != (row.wantCode == nil) || err != nil && err.Error() != row.wantCode.Error() {
				t.Errorf("over: %t, %v; want %t, %v", over, err, row.want, row.wantCode)
			}
		})
	}
}

func TestWhenAWatchOfSeveralIsOver(t *testing.T) {
	gone := func(sj *v1alpha1.SequentialJob) sight { return sight{Object: sj, Deleted: true} }
	for name, row := range map[string]struct {
		endless  bool
		sights   []sight
		want     bool
		wantCode error
	}{
		"never, if it is not to end":                {true, []sight{{Object: completed("a")}}, false, nil},
		"not while one runs":                        {false, []sight{{Object: completed("a")}, {Object: running("b")}}, false, nil},
		"when all completed":                        {false, []sight{{Object: completed("a")}, {Object: completed("b")}}, true, nil},
		"when one of them failed":                   {false, []sight{{Object: completed("a")}, {Object: failed("b")}}, true, errUnsuccessful},
		"one that failed counts when it is gone":    {false, []sight{{Object: failed("a")}, gone(failed("a")), {Object: completed("b")}}, true, errUnsuccessful},
		"one that completed may go":                 {false, []sight{{Object: completed("a")}, gone(completed("a"))}, true, nil},
		"one that went before its end has failed":   {false, []sight{{Object: running("a")}, gone(running("a"))}, true, errUnsuccessful},
		"without any, there is nothing to wait for": {false, nil, true, errors.New("there is no SequentialJob to wait for")},
	} {
		t.Run(name, func(t *testing.T) {
			v := newListView(still(), watchableSequentialJobs())
			v.endless = row.endless
			for _, s := range row.sights {
				v.applyUpdate(s)
			}
			over, err := v.isFinished()
			if over != row.want || (err == nil) != (row.wantCode == nil) || err != nil && err.Error() != row.wantCode.Error() {
				t.Errorf("over: %t, %v; want %t, %v", over, err, row.want, row.wantCode)
			}
		})
	}
}

func TestWhereNothingIsDrawnEachChangeIsToldOnce(t *testing.T) {
	one := &objectView[*v1alpha1.SequentialJob]{environment: still(), kind: watchableSequentialJobs(), latest: running("etl")}
	many := newListView(still(), watchableSequentialJobs())
	many.showNamespaces = true
	var ofOne, ofMany []string
	for _, s := range []sight{{Object: running("etl")}, {Object: running("etl")}, {Object: failed("etl")}, {Object: failed("etl"), Deleted: true}} {
		ofOne = append(ofOne, one.applyUpdate(s)...)
		ofMany = append(ofMany, many.applyUpdate(s)...)
	}
	want := []string{"step extract: Succeeded", "step load: Running", "Running, 1/2 steps", "step load: Failed", "Failed, 1/2 steps"}
	if diff := cmp.Diff(want, ofOne); diff != "" {
		t.Errorf("of one (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i] = "a/etl " + want[i]
	}
	if diff := cmp.Diff(append(want, "a/etl was deleted"), ofMany); diff != "" {
		t.Errorf("of several (-want +got):\n%s", diff)
	}
}

func TestTheBoardIsByNamespaceAndName(t *testing.T) {
	v := newListView(still(), watchableSequentialJobs())
	for _, name := range []string{"etl", "backup"} {
		v.applyUpdate(sight{Object: completed(name)})
	}
	want := []string{
		"NAME     STATUS      STEPS   STEP      TIME   AGE",
		"backup   Completed   ✔✔                1m0s   60m",
		"etl      Completed   ✔✔                1m0s   60m",
		"",
		"✔ succeeded   ✘ failed   ▶ running   · to come   - skipped   | finally",
	}
	if diff := cmp.Diff(want, v.renderLines()); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
}
