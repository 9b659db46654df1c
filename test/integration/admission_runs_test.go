package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func createsOnlyRunsOfSchedules(t *testing.T, o *restrictedOperator) {
	schedule := newScheduleOf(o.watched, "nightly")
	o.create(schedule)
	for title, row := range map[string]struct {
		owners []metav1.OwnerReference
		denied bool
	}{
		"of a Schedule":    {decision.ControllerReferences("Schedule", schedule), false},
		"without an owner": {nil, true},
		"of a WorkerPool":  {decision.ControllerReferences("WorkerPool", o.owner), true},
	} {
		t.Run(title, func(t *testing.T) {
			sequence := testbuilder.SequentialJob("run", o.watched).Step("a").Obj()
			session := sessionWithSpec(o.watched, "run", map[string]any{"prompt": "do it"})
			for _, object := range []client.Object{sequence, session} {
				object.SetOwnerReferences(row.owners)
				err := o.client.Create(t.Context(), object, client.DryRunAll)
				if isDenied := isDeniedByPolicy(err); isDenied != row.denied || !isDenied && err != nil {
					t.Errorf("%T: %v, want a denial: %t", object, err, row.denied)
				}
			}
		})
	}
}
