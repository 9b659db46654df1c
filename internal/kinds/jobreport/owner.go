package jobreport

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Owner is the creator of a Job, as far as the Job states it.
type Owner struct {
	// Kind is the owner's kind, or HelmRelease.
	Kind string
	Name string
}

// IsZero reports whether the Job states no owner.
func (o Owner) IsZero() bool { return o == Owner{} }

// String returns the owner as kind/name.
func (o Owner) String() string {
	if o.IsZero() {
		return ""
	}
	return o.Kind + "/" + o.Name
}

// ownerLabels are labels that name an owner, and its kind. They count only for Jobs without a controller reference, which is
// more reliable.
var ownerLabels = []struct{ label, kind string }{
	{"jobset.sigs.k8s.io/jobset-name", "JobSet"},
	{"workflows.argoproj.io/cron-workflow", "CronWorkflow"},
	{"workflows.argoproj.io/workflow", "Workflow"},
}

// OwnerOf returns the Job's owner: its controller, such as a CronJob, or the owner in its labels and annotations. The owner of
// a scheduled run's Job is the Schedule. The queue of Kueue is the owner only of a Job without another owner.
func OwnerOf(job *batchv1.Job) Owner {
	if controller := metav1.GetControllerOfNoCopy(job); controller != nil {
		isRun := controller.APIVersion == v1alpha1.GroupVersion.String() &&
			(controller.Kind == "SequentialJob" || controller.Kind == "AgenticSession")
		if schedule := job.Labels[v1alpha1.LabelSchedule]; schedule != "" && isRun {
			return newOwner("Schedule", schedule)
		}
		return newOwner(controller.Kind, controller.Name)
	}
	for _, known := range ownerLabels {
		if name := job.Labels[known.label]; name != "" {
			return newOwner(known.kind, name)
		}
	}
	release := job.Annotations["meta.helm.sh/release-name"]
	if release == "" && job.Labels["app.kubernetes.io/managed-by"] == "Helm" {
		release = job.Labels["app.kubernetes.io/instance"] // Helm does not annotate hooks, but by convention charts label them
	}
	if release != "" {
		return newOwner("HelmRelease", release)
	}
	if queue := job.Labels[labelKueueQueue]; queue != "" {
		return newOwner("LocalQueue", queue)
	}
	return Owner{}
}

// newOwner truncates texts that others wrote: a report has a maximum size.
func newOwner(kind, name string) Owner {
	return Owner{Kind: TruncateText(kind, maxOwnerKindBytes), Name: TruncateText(name, maxOwnerNameBytes)}
}

// Bounds of an owner, in bytes.
const (
	maxOwnerKindBytes = 63
	maxOwnerNameBytes = 253
)
