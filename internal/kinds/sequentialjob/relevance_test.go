package sequentialjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestRelevantUpdatesOfAJob(t *testing.T) {
	now := time.Unix(1, 0)
	sj := sequence("build").Step("test", testbuilder.StepStartDeadline(30)).Obj()
	createdJob := func(step int) *testbuilder.JobBuilder {
		return testbuilder.Job(stepJob(sj, &sj.Spec.Containers[step], 1, 1)).Created("job", now)
	}
	running := func() *testbuilder.JobBuilder { return createdJob(0).Active(now) }
	resumed := running().Suspended(now).Obj().DeepCopy()
	resumed.Spec.Suspend = new(false)

	for name, test := range map[string]struct {
		before, after *batchv1.Job
		want          bool
	}{
		"no change":                              {before: running().Obj(), after: running().Obj()},
		"a Pod starts":                           {before: createdJob(0).Obj(), after: running().Obj()},
		"the Job gets SuccessCriteriaMet":        {before: running().Obj(), after: running().Condition(batchv1.JobSuccessCriteriaMet, "", "", now).Obj()},
		"the Job completes":                      {before: running().Obj(), after: running().Complete(now).Obj(), want: true},
		"the Job fails":                          {before: running().Obj(), after: running().Failed("x", "", now).Obj(), want: true},
		"the Job is deleted":                     {before: running().Obj(), after: running().Deleted(now).Obj(), want: true},
		"the Job is suspended":                   {before: running().Obj(), after: running().Suspended(now).Obj(), want: true},
		"the Job is resumed":                     {before: running().Suspended(now).Obj(), after: resumed, want: true},
		"the start deadline begins":              {before: createdJob(1).Obj(), after: createdJob(1).PodPending(now).Obj(), want: true},
		"a Pod starts within the start deadline": {before: createdJob(1).PodPending(now).Obj(), after: createdJob(1).Active(now).Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "is relevant", test.want, IsRelevantUpdate(test.before, test.after))
		})
	}
}
