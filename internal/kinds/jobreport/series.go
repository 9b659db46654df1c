package jobreport

import (
	"cmp"
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
	labelInstance             = "app.kubernetes.io/instance"
	annotationHelmRelease     = "meta.helm.sh/release-name"
	annotationHelmHook        = "helm.sh/hook"
	annotationArgoCDHook      = "argocd.argoproj.io/hook"
	annotationArgoCDTracking  = "argocd.argoproj.io/tracking-id"
)

// Series is a Job's place among Jobs of the same namespace that do the same thing one after another: the runs of a CronJob, the
// attempts of a step. It is derived from the Job alone, so a Job whose relation to others is unknown belongs to no series.
type Series struct {
	// Key identifies the series in a namespace.
	Key string
	// Position orders the Jobs of a series. Jobs of the same position do not supersede each other.
	Position int64
	// Supersedes is true if earlier failures no longer matter because of this Job.
	Supersedes bool
}

// isSupersededBy reports whether a failure of a Job in this place no longer matters because of a Job in the other place.
func (s Series) isSupersededBy(other Series) bool {
	return other.Supersedes && other.Key == s.Key && other.Position > s.Position
}

// SeriesOf returns the Job's place in each of its series.
//
// The Jobs of a repeated run no longer matter, whatever the next run does: it has its own Jobs. If it is unknown which Job
// repeats which, only a success is evidence.
func SeriesOf(job *batchv1.Job) []Series {
	f := &jobFacts{Job: job}
	succeeded := f.trueCondition(batchv1.JobComplete) != nil && f.trueCondition(batchv1.JobFailed) == nil
	created := f.CreationTimestamp.Unix()
	bySuccess := func(key ...string) Series { return Series{strings.Join(key, "/"), created, succeeded} }

	var all []Series
	if name := job.Labels[v1alpha1.LabelReportSeries]; name != "" {
		all = append(all, bySuccess("label", name))
	}
	controller := metav1.GetControllerOfNoCopy(job)
	if controller == nil {
		return append(all, seriesOfHook(job, bySuccess)...)
	}
	group, _, _ := strings.Cut(controller.APIVersion, "/")
	uid := string(controller.UID)
	switch {
	case uid == "":
	case group == v1alpha1.GroupVersion.Group && controller.Kind == "SequentialJob":
		run, step := job.Annotations[v1alpha1.AnnotationRun], job.Labels[v1alpha1.LabelStep]
		all = append(all, numbered(uid, run)...)
		if step != "" {
			// The attempts at a step follow each other, and a success ends them, also within the second of the failure before it.
			attempt := Series{uid + "/" + run + "/" + step, 2 * created, true}
			if succeeded {
				attempt.Position++
			}
			all = append(all, attempt)
		}
		if schedule := job.Labels[v1alpha1.LabelSchedule]; schedule != "" {
			all = append(all, bySuccess("schedule", schedule, step))
		}
	case group == v1alpha1.GroupVersion.Group && controller.Kind == "AgenticSession":
		all = append(all, Series{uid, created, true}) // its attempts follow each other
		if schedule := job.Labels[v1alpha1.LabelSchedule]; schedule != "" {
			all = append(all, bySuccess("schedule", schedule))
		}
	case group == "jobset.x-k8s.io" && controller.Kind == "JobSet":
		all = append(all, numbered(uid, job.Labels[labelJobSetRestartAttempt])...)
	case group == "batch" && controller.Kind == "CronJob":
		all = append(all, bySuccess(uid))
	case job.GenerateName != "":
		// An Argo Workflow and many others name the retries of a Job by the same prefix.
		all = append(all, bySuccess(uid, job.GenerateName))
	}
	return all
}

// numbered returns the series of a Job whose controller numbers its runs. Without a number the Job's place is unknown.
func numbered(key, number string) []Series {
	position, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return nil
	}
	return []Series{{key, position, true}}
}

// seriesOfHook returns the series of a hook, which Helm and Argo CD create again for each revision. Both run the hooks of a
// revision one after another and stop at the first failure, so a later success of a hook with the same name but for its number
// means that the hooks before it have succeeded too.
func seriesOfHook(job *batchv1.Job, bySuccess func(...string) Series) []Series {
	trackedBy, _, _ := strings.Cut(job.Annotations[annotationArgoCDTracking], ":")
	instance := cmp.Or(job.Annotations[annotationHelmRelease], job.Labels[labelInstance], trackedBy)
	hook, base := job.Annotations[annotationArgoCDHook], job.GenerateName
	if helm := job.Annotations[annotationHelmHook]; helm != "" {
		hook = helm
		base = cmp.Or(base, strings.TrimRight(job.Name, "0123456789"))
	}
	if hook == "" || base == "" || instance == "" {
		return nil
	}
	return []Series{bySuccess("hook", instance, hook, base)}
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
