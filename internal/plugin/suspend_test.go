package plugin

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// suspendField returns the field of the spec that suspends an object.
func suspendField(object client.Object) *bool {
	switch object := object.(type) {
	case *v1alpha1.SequentialJob:
		return &object.Spec.Suspend
	case *v1alpha1.Queue:
		return &object.Spec.Suspend
	case *v1alpha1.Schedule:
		return &object.Spec.Suspend
	default:
		return &object.(*v1alpha1.WorkerPool).Spec.Autoscaling.Suspend
	}
}

// Each kind that can be suspended, by each command in each state, alone and after an object that does not exist.
func TestSuspendAndResume(t *testing.T) {
	autoscaled := manualPool("mailers", 0, func(wp *v1alpha1.WorkerPool) {
		wp.Spec.Replicas, wp.Spec.Autoscaling = nil, &v1alpha1.Autoscaling{MaxReplicas: 3}
	})
	for _, kind := range []struct {
		object                                         client.Object
		name, suspend, resume                          string
		suspended, wasSuspended, resumed, notSuspended string
	}{
		{
			testbuilder.SequentialJob("etl", "a").Step("load").Obj(), "sequentialjob.yardmaster.dev/etl", "seq suspend", "seq resume",
			"suspended", "is already suspended", "resumed", "is not suspended",
		},
		{
			natsQueue("mail"), "queue.yardmaster.dev/mail", "queue suspend", "queue resume",
			"suspended", "is already suspended", "resumed", "is not suspended",
		},
		{
			nightlySchedule(), "schedule.yardmaster.dev/nightly", "schedule suspend", "schedule resume",
			"suspended", "is already suspended", "resumed", "is not suspended",
		},
		{
			autoscaled, "workerpool.yardmaster.dev/mailers", "pool suspend-scaling", "pool resume-scaling",
			"does not scale", "is already suspended, or is not autoscaled", "scales again", "is not suspended",
		},
	} {
		for _, row := range []struct {
			command      string
			wasSuspended bool
			message      string
		}{
			{kind.suspend, false, kind.suspended},
			{kind.suspend, true, kind.wasSuspended},
			{kind.resume, true, kind.resumed},
			{kind.resume, false, kind.notSuspended},
		} {
			for names, wantCode := range map[string]int{kind.object.GetName(): exitSuccess, "no-such " + kind.object.GetName(): exitError} {
				args := row.command + " " + names
				t.Run(args, func(t *testing.T) {
					*suspendField(kind.object) = row.wasSuspended
					c := newFakeClient(t, kind.object.DeepCopyObject().(client.Object))
					code, out, errOut := runPluginWith(t, args, c)
					isMissing := strings.Contains(errOut, `"no-such" not found`)
					if code != wantCode || out != kind.name+" "+row.message+"\n" || isMissing != (wantCode == exitError) {
						t.Errorf("exit code %d, stdout %q, stderr %q, want %q", code, out, errOut, row.message)
					}
					after := kind.object.DeepCopyObject().(client.Object)
					err := c.Get(t.Context(), client.ObjectKeyFromObject(after), after)
					if err != nil || *suspendField(after) != (row.command == kind.suspend) {
						t.Errorf("suspended: %t, %v", *suspendField(after), err)
					}
				})
			}
		}
	}
	for args, want := range map[string]string{
		"seq suspend over": "sequentialjob.yardmaster.dev/over suspended; " +
			"its run has finished, and the next run will wait until it is resumed",
		"pool suspend-scaling manual": "workerpool.yardmaster.dev/manual is already suspended, or is not autoscaled",
	} {
		if _, out, errOut := runPlugin(t, args, failedSequence("over"), manualPool("manual", 3)); out != want+"\n" {
			t.Errorf("%s: stdout %q, stderr %q", args, out, errOut)
		}
	}
}
