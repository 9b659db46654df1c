package sequentialjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"and the finally steps follow": {sequence("build", "test").Finally("cleanup"), story{
			created("build"), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
			wait(time.Minute), created("build"), steps("build: Starting", "test: Pending", "cleanup: Pending"),
			succeed("build"), created("build", "test"),
			succeed("test"), created("build", "test", "cleanup"), phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunningFinally),
			succeed("cleanup"), steps("build: Succeeded", "test: Succeeded", "cleanup: Succeeded"),
			phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"unless another controller manages them": {sequence("build").ManagedBy("acme.io/controller"), story{
			created(), hasFinalizer(false), func(s *testEnv) { assert.Equal(s.t, "run", int32(0), s.sj.Status.Run) },
		}},
		"after a Job that is not known was deleted": {sequence("build", "test"), story{
			func(s *testEnv) {
				stray := testbuilder.Job(s.newestJob("build").DeepCopy()).Created("stray", s.now).Obj()
				stray.Name = "a-forgotten"
				s.jobs = append([]*batchv1.Job{stray}, s.jobs...)
			},
			succeed("build"), created("build"), removeJobs, created("build", "test"),
		}},
		"this operator may be named": {sequence("build").ManagedBy(v1alpha1.SequentialJobManager), story{created("build")}},
	})
}
