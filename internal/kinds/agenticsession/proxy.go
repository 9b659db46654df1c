package agenticsession

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

const (
	// proxyURLKey is the key, in the inputs, of the URL of the egress proxy, which contains the session's token.
	proxyURLKey = "egress-proxy-url"
	// proxyTokenMargin is how much longer a token is valid than the session may run: its Pod may wait for a node.
	proxyTokenMargin = 24 * time.Hour
	// unlimitedTokenLifetime is the lifetime of a token if the session's time is not limited, or its Job may wait in a
	// queue.
	unlimitedTokenLifetime = 365 * 24 * time.Hour
)

// Variables that make programs use the egress proxy. The operator sets them if the SessionRunner allows hosts.
var (
	proxyURLVariables = []string{"HTTPS_PROXY", "https_proxy"}
	noProxyVariables  = []string{"NO_PROXY", "no_proxy"}
	nodeProxyVariable = "NODE_USE_ENV_PROXY"
	proxyVariables    = slices.Concat(proxyURLVariables, noProxyVariables, []string{nodeProxyVariable})
)

// egressTokenExpires returns until when the token of the session is valid: for as long as an attempt that starts now may run. It is nil
// without a token.
func egressTokenExpires(f *facts, status *v1alpha1.AgenticSessionStatus) *metav1.Time {
	if !sessionrunner.UsesProxy(f.Runner) {
		return nil
	}
	lifetime := unlimitedTokenLifetime
	// A Job may wait in a queue for any time, and its Pod then reads this token.
	isQueued := f.Runner.Spec.JobMetadata != nil && f.Runner.Spec.JobMetadata.Labels[queueLabel] != ""
	if left, limited := remainingSeconds(&f.Observation, status); limited && !isQueued {
		lifetime = time.Duration(left) * time.Second
	}
	expires, needed := status.Attempt.EgressTokenExpires, f.now.Add(lifetime)
	if expires == nil || expires.Time.Before(needed) {
		return new(metav1.NewTime(needed.Add(proxyTokenMargin)))
	}
	return expires
}

// usesProxy reports whether the attempt's containers get the URL of the egress proxy.
func (b *objectBuilder) usesProxy() bool {
	runner := b.settings.runner
	return sessionrunner.UsesProxy(runner) && runner.Status.EgressProxyAddress != "" && b.keys != nil && b.status.Attempt.EgressTokenExpires != nil
}

// newProxyVariables returns the variables that make programs use the egress proxy. They refer to the token in the
// inputs, because more users may read Pods than Secrets.
func (b *objectBuilder) newProxyVariables(inputs string) []corev1.EnvVar {
	if !b.usesProxy() {
		return nil
	}
	var variables []corev1.EnvVar
	for _, name := range proxyURLVariables {
		variables = append(variables, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: inputs}, Key: proxyURLKey,
		}}})
	}
	direct := []string{"localhost", "127.0.0.1", "::1", "$(KUBERNETES_SERVICE_HOST)"} // the kubelet sets KUBERNETES_SERVICE_HOST
	for _, rule := range b.settings.runner.Spec.Network.Egress {
		if rule.To != nil && rule.To.IPBlock != nil {
			direct = append(direct, rule.To.IPBlock.CIDR)
		}
	}
	for _, name := range noProxyVariables {
		variables = append(variables, corev1.EnvVar{Name: name, Value: strings.Join(direct, ",")})
	}
	return append(variables, corev1.EnvVar{Name: nodeProxyVariable, Value: "1"})
}

// checkProxyUse rejects variables that the operator sets, and repositories that the proxy cannot reach.
func (r *runnerSettings) checkProxyUse(s *v1alpha1.AgenticSession) field.ErrorList {
	if !sessionrunner.UsesProxy(r.runner) {
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("spec")
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if slices.Contains(proxyVariables, name) {
			errs = append(errs, field.Forbidden(at.Child("environmentVariables").Key(name), "the operator sets this variable for the hosts of SessionRunner "+r.runner.Name))
		}
	}
	if !sessionrunner.UsesOnlyProxy(r.runner) { // another rule may allow the server's address
		return errs
	}
	check := func(url v1alpha1.GitURL, at *field.Path) {
		if !strings.HasPrefix(strings.ToLower(string(url)), "https://") {
			errs = append(errs, field.Forbidden(at, "SessionRunner "+r.runner.Name+" allows only TLS connections to hosts, and not SSH; use an https:// URL"))
		}
	}
	for i := range s.Spec.Repos {
		check(s.Spec.Repos[i].URL, at.Child("repos").Index(i).Child("url"))
	}
	if workflow := s.Spec.Agent.Workflow; workflow != nil {
		check(workflow.URL, at.Child("agent", "workflow", "url"))
	}
	return errs
}
