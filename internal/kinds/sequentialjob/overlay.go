package sequentialjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsjson "sigs.k8s.io/json"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func overlaidTemplate(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) (corev1.PodTemplateSpec, error) {
	template := corev1.PodTemplateSpec{}
	if sj.Spec.Template != nil {
		template = *sj.Spec.Template.PodTemplateSpec.DeepCopy()
	}
	overlay := step.Options().PodTemplate
	if overlay == nil || len(overlay.Raw) == 0 {
		return template, nil
	}
	if err := checkOverlay(overlay.Raw); err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	original, err := json.Marshal(&template)
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	patched, err := strategicpatch.StrategicMergePatch(original, overlay.Raw, corev1.PodTemplateSpec{})
	if err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("not a strategic merge patch of spec.template: %w", err)
	}
	merged := corev1.PodTemplateSpec{}
	return merged, json.Unmarshal(patched, &merged)
}

// overlayError returns why the step's podTemplate cannot be merged into spec.template; nil if it can.
func overlayError(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) error {
	_, err := overlaidTemplate(sj, step)
	return err
}

// checkOverlay returns an error if the patch has fields that a Pod template does not have, or containers: the CRD's
// schema cannot check a patch.
func checkOverlay(raw []byte) error {
	var parsed map[string]any
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return errors.New("must be an object")
	}
	plain, err := json.Marshal(withoutDirectives(parsed))
	if err != nil {
		return err
	}
	overlay := corev1.PodTemplateSpec{}
	unknown, err := sigsjson.UnmarshalStrict(plain, &overlay)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return err
	}
	if len(overlay.Spec.Containers) > 0 {
		return errors.New("cannot have containers: set the fields of the step itself, and define sidecars as initContainers with restartPolicy: Always")
	}
	return nil
}

// withoutDirectives returns a patch without its directives, such as $patch, and their values.
func withoutDirectives(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if strings.HasPrefix(key, "$") {
				delete(value, key)
				continue
			}
			value[key] = withoutDirectives(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withoutDirectives(value[i])
		}
	}
	return value
}

// validateOverlay checks a step's podTemplate as validateTemplate checks spec.template.
func validateOverlay(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, merged *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	if step.Options().PodTemplate == nil {
		return nil
	}
	overlay := corev1.PodTemplateSpec{}
	if err := json.Unmarshal(step.Options().PodTemplate.Raw, &overlay); err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	errs := validateLabels(overlay.Labels, path.Child("metadata", "labels"))
	errs = append(errs, validateAnnotations(overlay.Annotations, path.Child("metadata", "annotations"))...)
	pod := path.Child("spec")
	return append(errs, validatePod(sj, &overlay.Spec, merged.Spec.RestartPolicy, pod)...)
}
