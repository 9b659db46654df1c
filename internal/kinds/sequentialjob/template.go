package sequentialjob

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
	sigsjson "sigs.k8s.io/json"

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
	if defaults.SecurityContext != nil && overlay.SecurityContext != nil {
		merged.SecurityContext = defaults.SecurityContext.DeepCopy()
		overlayFields(merged.SecurityContext, overlay.SecurityContext)
	}
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

// overlaidTemplate returns spec.template with the step's podTemplate merged into it, or why that is not possible.
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

// checkOverlay returns an error if the patch has fields that a Pod template does not have, or containers: the CRD's
// schema cannot check a patch.
func checkOverlay(raw []byte) error {
	var parsed map[string]any
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return errors.New("must be an object")
	}
	plain, err := json.Marshal(rewriteJSON(parsed, func(value any) any {
		if object, isObject := value.(map[string]any); isObject { // a directive of a patch, such as $patch, is no field
			maps.DeleteFunc(object, func(key string, _ any) bool { return strings.HasPrefix(key, "$") })
		}
		return value
	}))
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

// podSecurityChecks are the checks of the Pod Security Standards in all their versions.
var podSecurityChecks = sync.OnceValues(func() (podsecuritypolicy.Evaluator, error) {
	return podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
})

// PodSecurityWarnings returns a warning for each set of violations of the Pod Security Standard that a namespace with
// these labels enforces. It ignores the cluster's default for namespaces without labels, which it cannot read.
func PodSecurityWarnings(sj *v1alpha1.SequentialJob, namespaceLabels map[string]string) []string {
	privileged := podsecurity.LevelVersion{Level: podsecurity.LevelPrivileged, Version: podsecurity.LatestVersion()}
	// With invalid labels, the API server enforces the returned policy too.
	enforced, _ := podsecurity.PolicyToEvaluate(namespaceLabels, podsecurity.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	checks, err := podSecurityChecks()
	if err != nil || enforced.Enforce.Level == podsecurity.LevelPrivileged {
		return nil
	}
	stepsByViolations := map[string][]string{}
	for path, step := range StepFields(sj) {
		template := podTemplate(sj, step)
		result := podsecuritypolicy.AggregateCheckResults(checks.EvaluatePod(enforced.Enforce, &metav1.ObjectMeta{}, &template.Spec))
		if violations := result.ForbiddenReason(); !result.Allowed {
			stepsByViolations[violations] = append(stepsByViolations[violations], path.String())
		}
	}
	var warnings []string
	for violations, steps := range stepsByViolations {
		warnings = append(warnings, fmt.Sprintf("%s: the namespace enforces PodSecurity %q and will refuse the Pod: %s; spec.template.securityProfile: Restricted sets what is missing",
			strings.Join(steps, ", "), enforced.Enforce.String(), violations))
	}
	slices.SortFunc(warnings, cmp.Compare)
	return warnings
}

// restrictedUser is the user and group of Pods with the security profile Restricted, as in distroless images.
const restrictedUser = 65532

// restrictPod sets the fields that the Pod Security Standard "restricted" requires, unless the Pod sets them. For Windows, it
// requires only one, and the API server refuses the others.
func restrictPod(pod *corev1.PodSpec) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	context := pod.SecurityContext
	setDefault(&context.RunAsNonRoot, true)
	if pod.OS != nil && pod.OS.Name == corev1.Windows {
		return
	}
	setDefault(&context.RunAsUser, restrictedUser)
	setDefault(&context.RunAsGroup, restrictedUser)
	setDefault(&context.FSGroup, restrictedUser)
	setDefault(&context.SeccompProfile, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	for i := range pod.InitContainers {
		restrictContainer(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		restrictContainer(&pod.Containers[i])
	}
}

func restrictContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	context := container.SecurityContext
	if ptr.Deref(context.Privileged, false) {
		return // the API server rejects a privileged container that must not gain privileges
	}
	setDefault(&context.AllowPrivilegeEscalation, false)
	if context.Capabilities == nil {
		context.Capabilities = &corev1.Capabilities{}
	}
	if len(context.Capabilities.Drop) == 0 {
		context.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
