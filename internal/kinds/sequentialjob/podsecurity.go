package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
