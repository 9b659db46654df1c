package sequentialjob

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The simulation makes observations of all kinds, with the answers to questions.
func TestNoStageChangesWhatAnEarlierOneDecided(t *testing.T) {
	t.Parallel()
	stages := cmp.Exporter(func(reflect.Type) bool { return true })
	for seed := range uint64(20) {
		w := newSimulator(seed)
		for range 20 {
			w.applyRandomEvent()
			in := w.observe()
			stored := in.SequentialJob.DeepCopy()
			d := w.decide(&in)
			f := newFacts(in)
			r := newRun(f)
			p := advance(f, &r)
			a := archiveLogs(f, &p.status)
			report(f, &p, &a)

			in.SequentialJob = stored.DeepCopy()
			fresh := newFacts(in)
			freshRun := newRun(fresh)
			freshProgress := advance(fresh, &freshRun)
			in.SequentialJob = stored
			for stage, pair := range map[string][2]any{
				"facts": {newFacts(in), f}, "run": {newRun(fresh), r}, "progress": {freshProgress, p}, "archive": {archiveLogs(fresh, &freshProgress.status), a},
			} {
				if reflect.DeepEqual(pair[0], pair[1]) {
					continue // most stages, in a hundredth of the time
				}
				if diff := cmp.Diff(pair[0], pair[1], stages); diff != "" {
					t.Fatalf("seed %d: a later stage changes %s (-before, +after):\n%s", seed, stage, diff)
				}
			}
			_ = w.carryOutDecision(in, d) // a crash or a conflict ends the reconciliation
		}
	}
}
