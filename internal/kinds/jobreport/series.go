package jobreport

import (
	"encoding/json"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Labels and annotations of other projects.
const (
	labelKueueQueue           = "kueue.x-k8s.io/queue-name"
	labelJobSetRestartAttempt = "jobset.sigs.k8s.io/restart-attempt"
)

// Series is a Job's place among Jobs of the same controller that supersede each other: the runs of a CronJob, or the attempts
// of a JobSet. It is derived from the Job alone, so a Job whose relation to others is unknown belongs to no series.
type Series struct {
	// Key identifies the series; empty without a series.
	Key string
	// Position orders the Jobs of a series. Jobs of the same position do not supersede each other.
	Position int64
	// Supersedes is true if earlier failures no longer matter because of this Job.
	Supersedes bool
	// Failed is true if the Job failed, so that a later Job can supersede it.
	Failed bool
}

// SeriesOf returns the Job's place in its series.
//
// The Jobs of a repeated run no longer matter, whatever the next run does: it has its own Jobs. If it is unknown which Job
// repeats which, only a success is evidence.
func SeriesOf(job *batchv1.Job) Series {
	controller := metav1.GetControllerOfNoCopy(job)
	if controller == nil || controller.UID == "" {
		return Series{}
	}
	f := &jobFacts{Job: job}
	series := Series{Key: string(controller.UID), Failed: f.trueCondition(batchv1.JobFailed) != nil}
	succeeded := f.trueCondition(batchv1.JobComplete) != nil && !series.Failed
	switch group, _, _ := strings.Cut(controller.APIVersion, "/"); {
	case group == v1alpha1.GroupVersion.Group && controller.Kind == "SequentialJob":
		return series.atPosition(job.Annotations[v1alpha1.AnnotationRun])
	case group == v1alpha1.GroupVersion.Group && controller.Kind == "AgenticSession":
		series.Position, series.Supersedes = f.CreationTimestamp.Unix(), true // its attempts follow each other
		return series
	case group == "jobset.x-k8s.io" && controller.Kind == "JobSet":
		return series.atPosition(job.Labels[labelJobSetRestartAttempt])
	case group == "batch" && controller.Kind == "CronJob":
		series.Position, series.Supersedes = f.CreationTimestamp.Unix(), succeeded
		return series
	case job.GenerateName != "":
		// An Argo Workflow and many others name the retries of a Job by the same prefix.
		series.Key += "/" + job.GenerateName
		series.Position, series.Supersedes = f.CreationTimestamp.Unix(), succeeded
		return series
	default:
		return Series{}
	}
}

// atPosition returns the series of a Job whose controller numbers its runs. Without a number the Job's place is unknown.
func (s Series) atPosition(number string) Series {
	position, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return Series{}
	}
	s.Position, s.Supersedes = position, true
	return s
}

// isTolerated reports whether the Job is a step of a SequentialJob that continues after a failure of this step.
func (f *jobFacts) isTolerated() bool {
	controller := metav1.GetControllerOfNoCopy(f.Job)
	if controller == nil || controller.Kind != "SequentialJob" {
		return false
	}
	options := struct {
		OnFailure v1alpha1.FailureAction `json:"onFailure"`
	}{}
	raw := f.Annotations[v1alpha1.AnnotationStepOptions]
	return raw != "" && json.Unmarshal([]byte(raw), &options) == nil && options.OnFailure == v1alpha1.OnFailureContinue
}
