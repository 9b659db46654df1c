package workerpool

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestNoStageChangesWhatAnEarlierOneDecided(t *testing.T) {
	deleted := rollingPool(4, 2)
	deleted.Pool.DeletionTimestamp = &metav1.Time{Time: testTime}
	failing := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(10, 10)).changeWorker("worker:1-0", countOutcomes(50, 0))
	failing.Rollout = RolloutMemory{Revision: failing.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour)}
	canary := rollingPool(4, 1)
	canary.Pool.Spec.Rollout = &v1alpha1.Rollout{Strategy: v1alpha1.RolloutCanary, Steps: []v1alpha1.RolloutStep{{Percent: 25}}}
	for name, pool := range map[string]*testPool{
		"new": newTestPool(2), "rolling out": rollingPool(4, 2), "rolled back": failing, "canary": canary, "deleted": deleted,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(pool.Observation)
			d := decideDemand(f)
			r := decideRollout(f, d.desired)
			p := planWorkers(f, &r)
			newReport(f, &d, &r, &p)

			stages := cmp.Options{
				cmp.Exporter(func(reflect.Type) bool { return true }),
				cmp.Transformer("byName", func(serving map[*revisionState]int32) map[string]int32 {
					byName := map[string]int32{}
					for revision, count := range serving {
						byName[revision.Name] = count
					}
					return byName
				}),
			}
			freshFleet := newFleet(pool.Observation)
			freshDemand := decideDemand(freshFleet)
			freshRollout := decideRollout(freshFleet, freshDemand.desired)
			freshPlan := planWorkers(freshFleet, &freshRollout)
			for stage, pair := range map[string][2]any{
				"fleet": {newFleet(pool.Observation), f}, "demand": {freshDemand, d}, "rollout": {freshRollout, r}, "plan": {freshPlan, p},
			} {
				diff := cmp.Diff(pair[0], pair[1], stages)
				require.True(t, diff == "", "a later stage changes %s (-before, +after):\n%s", stage, diff)
			}
		})
	}
}
