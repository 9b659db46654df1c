package session

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// deadline of the newest Job; -1 if it has none.
func (s *scene) deadline() int64 {
	if deadline := s.job().Spec.ActiveDeadlineSeconds; deadline != nil {
		return *deadline
	}
	return -1
}

func TestAJobHasWhatIsLeftOfTheSessionsTime(t *testing.T) {
	tests := map[string]struct {
		timeout *int32
		most    *int64
		want    int64
	}{
		"the default is four hours":              {nil, nil, 14400},
		"its timeout":                            {new(int32(60)), nil, 60},
		"no end":                                 {new(int32(0)), nil, -1},
		"the SessionRunner allows less":          {new(int32(60)), new(int64(30)), 30},
		"the SessionRunner allows more":          {new(int32(60)), new(int64(90)), 60},
		"no end, but for the SessionRunner's":    {new(int32(0)), new(int64(30)), 30},
		"the default, but for the SessionRunner": {nil, new(int64(30)), 30},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Timeout = test.timeout })
			s.Runner.Spec.ActiveDeadlineSeconds = test.most
			if got := s.begin().deadline(); got != test.want {
				t.Errorf("%d seconds, want %d", got, test.want)
			}
		})
	}
}

func TestTimeIsCountedOverAllRuns(t *testing.T) {
	s := scenery(t, timeout(100)).begin().running()
	s.after(30*time.Second).exited(0, "").decide()
	if got := s.changed(again).after(time.Hour).begin().deadline(); got != 70 {
		t.Fatalf("the second run has %d seconds, want 70", got)
	}
	s.running().decide()
	s.after(20500 * time.Millisecond).changed(stopped).decide()
	s.deleting().after(time.Second).gone().decide()
	if got := s.changed(started).after(time.Hour).begin().deadline(); got != 48 {
		t.Fatalf("after a stop in the middle of a second it has %d seconds, want 48", got)
	}
	s.running().decide()
	s.after(48*time.Second).exited(143, "").job().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	s.wants(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	s.tells(v1alpha1.EventDeadlineExceeded)

	plan := s.changed(again).wants(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	if plan.Create != nil {
		t.Error("a Job is made without any time")
	}
	if got := s.changed(timeout(160)).changed(again).begin().deadline(); got != 60 {
		t.Errorf("with a longer timeout it has %d seconds, want 60", got)
	}
}

func TestARunThatFailedIsNotTriedAgainWithoutTime(t *testing.T) {
	s := scenery(t, timeout(60), retry(5)).begin().running()
	s.after(60*time.Second).exited(1, "").wants(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
}

// However late an operator notices that a Job is gone, the time in which nothing can have
// run is not counted.
func TestTimeInWhichNothingRanIsNotCounted(t *testing.T) {
	t.Run("after a stop", func(t *testing.T) {
		s := scenery(t).begin().running()
		s.decide()
		s.after(10 * time.Second).changed(stopped).decide()
		s.gone().after(24 * time.Hour).decide()
		if got := s.Session.Status.ActiveSeconds; got != 35 {
			t.Errorf("%d seconds, want 10 and 25 of grace", got)
		}
	})
	t.Run("after a Job was lost", func(t *testing.T) {
		s := scenery(t, timeout(60)).begin().running()
		s.decide()
		s.gone().after(24 * time.Hour).decide()
		if got := s.Session.Status.ActiveSeconds; got != 60 {
			t.Errorf("%d seconds, want the 60 that it could have run", got)
		}
	})
}

func TestRetriesWaitLongerEachTime(t *testing.T) {
	s := scenery(t, retry(5))
	for _, seconds := range []int{10, 20, 40, 80, 160} {
		want := time.Duration(seconds) * time.Second
		s.begin().exited(1, "")
		plan := s.wants(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		if plan.RequeueAfter != want {
			t.Errorf("it is tried again after %s, want %s", plan.RequeueAfter, want)
		}
		s.after(want)
	}
	s.begin().exited(1, "").wants(v1alpha1.SessionFailed, v1alpha1.ReasonExitedWithError)
	s.changed(again).begin()
	if s.Session.Status.Retries != 0 {
		t.Error("another run has none left")
	}
}

func TestDisruptionsAreTriedAgainOnlyIfThatIsAskedFor(t *testing.T) {
	s := scenery(t, retry(5)).begin().running()
	s.decide()
	s.gone().wants(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
	s = scenery(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true} })
	for range maxDisruptions {
		s.begin().running().decide()
		s.gone().wants(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
		s.after(time.Hour)
	}
	s.begin().running().decide()
	s.gone().wants(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
}

func TestOnlyTenRunsAreKept(t *testing.T) {
	s := scenery(t)
	var deleted []string
	for range 12 {
		plan := s.begin().after(time.Second).exited(0, `{"costUSD": 0.1}`).decide()
		for _, job := range plan.Delete {
			deleted = append(deleted, job.Name)
			s.Jobs = slices.DeleteFunc(s.Jobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
		}
		s.changed(again)
	}
	if !slices.Equal(deleted, []string{"fix-r1-a1", "fix-r2-a1"}) {
		t.Errorf("Jobs %v are deleted, want those of runs that are not kept", deleted)
	}
	status := &s.Session.Status
	if len(status.Runs) != maxRuns || status.Runs[9].Run != 12 || status.Runs[0].Run != 3 {
		t.Errorf("%+v", status.Runs)
	}
	if status.ActiveSeconds != 12 || *status.TotalCostUSD != "1.2" {
		t.Errorf("%d seconds for %s dollars, want 12 for 1.2", status.ActiveSeconds, *status.TotalCostUSD)
	}
}
