package sequentialjob

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// reservedPrefixes are the prefixes of keys that users cannot set: of the operator, and of the labels by which the Job
// controller finds its Pods.
var reservedPrefixes = []string{v1alpha1.Prefix, "batch.kubernetes.io/"}

// reservedLabels are the Job controller's labels without a prefix.
var reservedLabels = []string{"job-name", "controller-uid"}

// reportAnnotations have a reserved prefix, but users can set them on their Jobs.
var reportAnnotations = []string{v1alpha1.AnnotationReportIgnore, v1alpha1.AnnotationReportRunningTooLong}

// Validate checks the template, and each step merged into it, beyond the CRD's rules.
func Validate(sj *v1alpha1.SequentialJob) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateJobMetadata(sj.Spec.JobMetadata, spec.Child("jobMetadata"))
	if template := sj.Spec.Template; template != nil {
		errs = append(errs, validateTemplate(sj, &template.PodTemplateSpec, template.Spec.RestartPolicy, spec.Child("template"))...)
	}
	errs = append(errs, validateExpressions(&sj.Spec)...)
	for path, step := range StepFields(sj) {
		errs = append(errs, validateStep(sj, step, path)...)
	}
	return errs
}

// StepFields returns the steps, each with its field.
func StepFields(sj *v1alpha1.SequentialJob) iter.Seq2[*field.Path, *v1alpha1.Step] {
	return func(yield func(*field.Path, *v1alpha1.Step) bool) {
		for i := range sj.Spec.Containers {
			if !yield(field.NewPath("spec", "containers").Index(i), &sj.Spec.Containers[i]) {
				return
			}
		}
	}
}

func validateJobMetadata(metadata *v1alpha1.ObjectMetadata, path *field.Path) field.ErrorList {
	if metadata == nil {
		return nil
	}
	others := maps.Clone(metadata.Annotations)
	maps.DeleteFunc(others, func(key, _ string) bool { return slices.Contains(reportAnnotations, key) })
	errs := validateKeys(metadata.Labels, others, path)
	if manager, isSet := metadata.Labels[v1alpha1.LabelManagedBy]; isSet && manager != v1alpha1.ManagedByValue {
		errs = append(errs, field.Forbidden(path.Child("labels").Key(v1alpha1.LabelManagedBy),
			"the operator manages the Jobs; set this label in spec.template.metadata.labels for their Pods"))
	}
	return errs
}

// validateKeys checks the labels and annotations in the metadata of a Job or Pod.
func validateKeys(labels, annotations map[string]string, path *field.Path) field.ErrorList {
	reserved := func(set map[string]string, path *field.Path) field.ErrorList {
		var errs field.ErrorList
		for key := range set {
			hasPrefix := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
			if slices.ContainsFunc(reservedPrefixes, hasPrefix) || slices.Contains(reservedLabels, key) {
				errs = append(errs, field.Forbidden(path.Key(key), "this key is reserved for controllers"))
			}
		}
		slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
		return errs
	}
	ofLabels, ofAnnotations := path.Child("labels"), path.Child("annotations")
	return slices.Concat(
		metav1validation.ValidateLabels(labels, ofLabels), reserved(labels, ofLabels),
		apivalidation.ValidateAnnotations(annotations, ofAnnotations), reserved(annotations, ofAnnotations),
	)
}

// validateTemplate checks spec.template or the overlay of a step, with the effective restartPolicy.
func validateTemplate(sj *v1alpha1.SequentialJob, template *corev1.PodTemplateSpec, policy corev1.RestartPolicy, path *field.Path) field.ErrorList {
	errs, pod := validateKeys(template.Labels, template.Annotations, path.Child("metadata")), path.Child("spec")
	for i, container := range template.Spec.Containers {
		if container.Name != templateContainer || i > 0 {
			errs = append(errs, field.Invalid(pod.Child("containers").Index(i).Child("name"), container.Name,
				"a template can have at most one container, named step; define sidecars as initContainers with restartPolicy: Always"))
		}
	}
	for i := range template.Spec.InitContainers {
		if name := template.Spec.InitContainers[i].Name; findStepSpec(&sj.Spec, name) != nil {
			errs = append(errs, field.Duplicate(pod.Child("initContainers").Index(i).Child("name"), name))
		}
	}
	if policy != "" && policy != corev1.RestartPolicyNever && policy != corev1.RestartPolicyOnFailure {
		errs = append(errs, field.NotSupported(pod.Child("restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}))
	}
	if sj.Spec.Workspace != nil && hasVolume(&template.Spec, workspaceVolume) {
		errs = append(errs, field.Forbidden(pod.Child("volumes"), `the volume name "`+workspaceVolume+`" is reserved for spec.workspace`))
	}
	return errs
}

func validateStep(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, path *field.Path) field.ErrorList {
	if _, err := overlaidTemplate(sj, step); err != nil {
		return field.ErrorList{field.Invalid(path.Child("step", "podTemplate"), field.OmitValueType{}, err.Error())}
	}
	var errs field.ErrorList
	template := podTemplate(sj, step)
	container := &template.Spec.Containers[0]
	if patch := step.Options().PodTemplate; patch != nil {
		overlay := corev1.PodTemplateSpec{}
		if err := json.Unmarshal(patch.Raw, &overlay); err != nil {
			errs = append(errs, field.Invalid(path.Child("step", "podTemplate"), field.OmitValueType{}, err.Error()))
		} else {
			errs = append(errs, validateTemplate(sj, &overlay, template.Spec.RestartPolicy, path.Child("step", "podTemplate"))...)
		}
	}
	if container.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), "set an image in the step or in the template's container named step"))
	}
	if strings.TrimSpace(container.Image) != container.Image {
		// The API server accepts a Job with such an image, but not its Pods.
		errs = append(errs, field.Invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace"))
	}
	if policy := container.RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
		errs = append(errs, field.Forbidden(path.Child("restartPolicy"), "must not be Always: the step's Job would never complete"))
	}
	options, needsNever := step.Options(), "requires the restartPolicy Never in spec.template.spec"
	if options.PodFailurePolicy != nil && template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		errs = append(errs, field.Forbidden(path.Child("step", "podFailurePolicy"), needsNever))
	}
	if options.BackoffLimitPerIndex != nil && template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		errs = append(errs, field.Forbidden(path.Child("step", "backoffLimitPerIndex"), needsNever))
	}
	for _, mount := range container.VolumeMounts {
		if hasVolume(&template.Spec, mount.Name) {
			continue
		}
		definedAt, hasSamePath := path.Child("step", "podTemplate"), func(m corev1.VolumeMount) bool { return m.MountPath == mount.MountPath }
		if at := slices.IndexFunc(step.VolumeMounts, hasSamePath); at >= 0 {
			definedAt = path.Child("volumeMounts").Index(at)
		} else if in := sj.Spec.Template; in != nil && len(in.Spec.Containers) > 0 {
			if at := slices.IndexFunc(in.Spec.Containers[0].VolumeMounts, hasSamePath); at >= 0 {
				definedAt = field.NewPath("spec", "template", "spec", "containers").Index(0).Child("volumeMounts").Index(at)
			}
		}
		errs = append(errs, field.NotFound(definedAt.Child("name"), mount.Name))
	}
	return errs
}

func hasVolume(pod *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}
