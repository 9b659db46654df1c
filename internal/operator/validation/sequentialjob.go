package validation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
)

// SetupSequentialJob adds the webhook of SequentialJobs to the manager.
func SetupSequentialJob(mgr ctrl.Manager) error {
	return sequentialJobValidator(newNamespaceLabels(mgr.GetAPIReader())).Setup(mgr)
}

func sequentialJobValidator(namespaces *namespaceLabels) *specValidator[*v1alpha1.SequentialJob] {
	return &specValidator[*v1alpha1.SequentialJob]{
		kind:    "SequentialJob",
		webhook: "sequentialjobs.yardmaster.dev",
		specOf:  func(sj *v1alpha1.SequentialJob) any { return sj.Spec },
		validate: func(sj *v1alpha1.SequentialJob) field.ErrorList {
			if !sequentialjob.IsManaged(sj) {
				return nil
			}
			return append(sequentialjob.Validate(sj), validateSize(sj)...)
		},
		warn: func(ctx context.Context, sj *v1alpha1.SequentialJob) admission.Warnings {
			return sequentialJobWarnings(ctx, namespaces, sj)
		},
		validateChange: func(before, after *v1alpha1.SequentialJob) field.ErrorList {
			if !sequentialjob.IsManaged(after) {
				return nil
			}
			return append(sequentialjob.ImmutabilityViolations(&before.Spec, &after.Spec, &before.Status), validateRerun(before, after)...)
		},
		warnChange: sequentialJobChangeWarnings,
	}
}

// maxObjectBytes is the size of a SequentialJob without its status. etcd limits objects to 1.5 MiB, and a status with 110 outputs
// needs up to 550 kB.
const maxObjectBytes = 1_000_000

// validateSize refuses an object whose status the operator could not write.
func validateSize(sj *v1alpha1.SequentialJob) field.ErrorList {
	withoutStatus := *sj
	withoutStatus.Status = v1alpha1.SequentialJobStatus{}
	raw, err := json.Marshal(&withoutStatus)
	if err != nil || len(raw) <= maxObjectBytes {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
		"the object has %d bytes with its metadata, and can have %d; move large scripts to ConfigMaps, and use kubectl apply --server-side, "+
			"which does not store the manifest a second time", len(raw), maxObjectBytes))}
}

// validateRerun refuses to request an impossible rerun of a finished run. A rerun that was requested earlier does not prevent other
// changes.
func validateRerun(before, after *v1alpha1.SequentialJob) field.ErrorList {
	if !sequentialjob.IsFinished(&before.Status) || !requestsRerun(before, after) {
		return nil
	}
	if err := sequentialjob.CheckRerun(&after.Spec, &before.Status); err != nil {
		value := "id " + after.Spec.Rerun.ID + " from " + after.Spec.Rerun.From
		return field.ErrorList{field.Invalid(field.NewPath("spec", "rerun"), value, err.Error())}
	}
	return nil
}

func requestsRerun(before, after *v1alpha1.SequentialJob) bool {
	return sequentialjob.IsRerunRequested(&after.Spec, &before.Status) &&
		!equality.Semantic.DeepEqual(before.Spec.Rerun, after.Spec.Rerun)
}

func sequentialJobWarnings(ctx context.Context, namespaces *namespaceLabels, sj *v1alpha1.SequentialJob) admission.Warnings {
	if !sequentialjob.IsManaged(sj) {
		return nil
	}
	var warnings admission.Warnings
	for path, step := range sequentialjob.StepFields(sj) {
		warnings = append(warnings, stepWarnings(sj, step, path.String())...)
	}
	return append(warnings, sequentialjob.PodSecurityWarnings(sj, namespaces.get(ctx, sj.Namespace))...)
}

func stepWarnings(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, path string) admission.Warnings {
	var warnings admission.Warnings
	template := sj.Spec.Template
	hasTemplateArgs := template != nil && len(template.Spec.Containers) > 0 && len(template.Spec.Containers[0].Args) > 0
	if len(step.Command) > 0 && step.Args == nil && hasTemplateArgs {
		warnings = append(warnings, path+".command: the step uses the args of spec.template; set args too unless they are meant for this command")
	}
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return warnings
	}
	for i, mount := range step.VolumeMounts {
		if mount.MountPath == workspace.MountPath && mount.Name != "workspace" {
			warnings = append(warnings, fmt.Sprintf("%s.volumeMounts[%d]: this mount replaces the workspace in this step", path, i))
		}
	}
	parallelism := step.Options().Parallelism
	if workspace.AccessMode == corev1.ReadWriteOncePod && parallelism != nil && *parallelism > 1 {
		warnings = append(warnings, path+".step.parallelism: only one Pod at a time can use a workspace with accessMode ReadWriteOncePod")
	}
	return warnings
}

func sequentialJobChangeWarnings(before, after *v1alpha1.SequentialJob) admission.Warnings {
	if !sequentialjob.IsManaged(after) {
		return nil
	}
	stepsChanged := !equality.Semantic.DeepEqual(before.Spec.Containers, after.Spec.Containers) ||
		!equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template)
	switch requested := requestsRerun(before, after); {
	case requested && !sequentialjob.IsFinished(&before.Status) && before.Status.Run > 0:
		return admission.Warnings{"spec.rerun: the rerun starts when the current run has finished"}
	case requested:
		if warning := sequentialjob.RerunWarning(&after.Spec, &before.Status); warning != "" {
			return admission.Warnings{"spec.rerun: " + warning}
		}
		return nil
	case sequentialjob.IsFinished(&before.Status) && stepsChanged:
		return admission.Warnings{"spec: the run has finished; set spec.rerun, with from, to run the changed steps"}
	default:
		return nil
	}
}

const (
	// namespaceReadTimeout is much shorter than the webhook's timeout of 5 s.
	namespaceReadTimeout = time.Second
	// Labels of up to maxNamespaces namespaces are remembered for namespaceMaxAge.
	namespaceMaxAge = 30 * time.Second
	maxNamespaces   = 1024
)

// namespaceLabels reads the labels of namespaces, for warnings.
type namespaceLabels struct {
	reader client.Reader
	recent *cache.LRUExpireCache
}

func newNamespaceLabels(reader client.Reader) *namespaceLabels {
	return &namespaceLabels{reader, cache.NewLRUExpireCache(maxNamespaces)}
}

// get returns the labels of a namespace; nil if they are unknown.
func (n *namespaceLabels) get(ctx context.Context, name string) map[string]string {
	if labels, found := n.recent.Get(name); found {
		return labels.(map[string]string) //nolint:forcetypeassert // the only type that is stored
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceReadTimeout)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := n.reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil
	}
	n.recent.Add(name, namespace.Labels, namespaceMaxAge)
	return namespace.Labels
}
