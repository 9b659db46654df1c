package sequentialjob

import (
	"cmp"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// templateContainer is the container in spec.template with the defaults of all steps.
const templateContainer = "step"

// mergeContainer merges a step's container into the template's defaults.
//
// Every field that the step sets takes precedence, so that fields added to the API later are
// merged too. Lists and maps with keys are merged by key, the template's entries first.
func mergeContainer(defaults, step *corev1.Container) corev1.Container {
	merged := *defaults.DeepCopy()
	overlay := step.DeepCopy()
	overlayFields(&merged, overlay)

	merged.Env = mergeByKey(defaults.Env, step.Env, func(e corev1.EnvVar) string { return e.Name })
	merged.EnvFrom = append(append([]corev1.EnvFromSource(nil), defaults.EnvFrom...), step.EnvFrom...)
	merged.VolumeMounts = mergeByKey(defaults.VolumeMounts, step.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath })
	merged.VolumeDevices = mergeByKey(defaults.VolumeDevices, step.VolumeDevices, func(d corev1.VolumeDevice) string { return d.DevicePath })
	type portKey struct {
		port     int32
		protocol corev1.Protocol
	}
	merged.Ports = mergeByKey(defaults.Ports, step.Ports, func(p corev1.ContainerPort) portKey {
		return portKey{p.ContainerPort, cmp.Or(p.Protocol, corev1.ProtocolTCP)} // the API server's default
	})
	merged.Resources = corev1.ResourceRequirements{
		Limits:   mergeResourceList(defaults.Resources.Limits, step.Resources.Limits),
		Requests: mergeResourceList(defaults.Resources.Requests, step.Resources.Requests),
		Claims:   mergeByKey(defaults.Resources.Claims, step.Resources.Claims, func(c corev1.ResourceClaim) string { return c.Name }),
	}
	merged.SecurityContext = mergeSecurityContext(defaults.SecurityContext, step.SecurityContext)
	return merged
}

// overlayFields copies every non-zero field of overlay to base. Both point to structs of the
// same type.
func overlayFields(base, overlay any) {
	to, from := reflect.ValueOf(base).Elem(), reflect.ValueOf(overlay).Elem()
	for i := range from.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// mergeByKey replaces entries of base with entries of overlay that have the same key, and appends the other entries of
// overlay.
func mergeByKey[T any, K comparable](base, overlay []T, key func(T) K) []T {
	merged := append([]T(nil), base...)
	at := make(map[K]int, len(base)+len(overlay))
	for i, entry := range merged {
		at[key(entry)] = i
	}
	for _, entry := range overlay {
		if i, ok := at[key(entry)]; ok {
			merged[i] = entry
			continue
		}
		at[key(entry)] = len(merged)
		merged = append(merged, entry)
	}
	return merged
}

func mergeResourceList(base, overlay corev1.ResourceList) corev1.ResourceList {
	if len(base)+len(overlay) == 0 {
		return nil
	}
	merged := make(corev1.ResourceList, len(base)+len(overlay))
	maps.Copy(merged, base)
	maps.Copy(merged, overlay)
	return merged
}

func mergeSecurityContext(base, overlay *corev1.SecurityContext) *corev1.SecurityContext {
	switch {
	case base == nil:
		return overlay.DeepCopy()
	case overlay == nil:
		return base.DeepCopy()
	}
	merged := base.DeepCopy()
	overlayFields(merged, overlay.DeepCopy())
	return merged
}

// containerDefaults returns the templateContainer of spec.template, or an empty container.
func containerDefaults(sj *v1alpha1.SequentialJob) *corev1.Container {
	if sj.Spec.Template != nil {
		for i := range sj.Spec.Template.Spec.Containers {
			if c := &sj.Spec.Template.Spec.Containers[i]; c.Name == templateContainer {
				return c
			}
		}
	}
	return &corev1.Container{}
}
