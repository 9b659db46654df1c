package session

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// defaultWorkspaceSize is that of a workspace whose session and SessionRunner say nothing.
var defaultWorkspaceSize = resource.MustParse("10Gi")

// runnerSettings is what a session runs as, within what its SessionRunner allows.
type runnerSettings struct {
	runner    *v1alpha1.SessionRunner
	image     string
	resources corev1.ResourceRequirements
	// persistent workspace, of a class and a size.
	persistent bool
	class      *string
	size       resource.Quantity
}

// resolveSettings tells what the session runs as, and each field in which it asks for more than its
// SessionRunner allows.
func resolveSettings(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) (*runnerSettings, field.ErrorList) {
	r := &runnerSettings{runner: runner}
	errs := validateRunner(runner)
	errs = append(errs, r.resolveImage(s)...)
	var tooMuch field.ErrorList
	r.resources, tooMuch = runnerResources(s, runner)
	errs = append(errs, tooMuch...)
	errs = append(errs, r.resolveWorkspace(s)...)
	errs = append(errs, checkVariablesAllowed(s, runner)...)
	errs = append(errs, checkSecretsAllowed(s, runner)...)
	errs = append(errs, checkActivityFields(s, runner)...)
	return r, errs
}

// ValidateWithRunner tells each field in which a session asks for more than its SessionRunner allows.
func ValidateWithRunner(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	_, errs := resolveSettings(s, runner)
	return errs
}

// validateRunner tells what is wrong with a SessionRunner, as a mistake of spec.runner: its
// sessions cannot do anything about it but name another.
func validateRunner(runner *v1alpha1.SessionRunner) field.ErrorList {
	at := field.NewPath("spec", "runner")
	var errs field.ErrorList
	bad := func(detail string) {
		errs = append(errs, field.Invalid(at, runner.Name, "the SessionRunner's "+detail))
	}
	for _, problem := range validateResources(&runner.Spec.Resources, field.NewPath("resources")) {
		bad(problem.Error())
	}
	for i := range runner.Spec.Egress {
		for _, except := range runner.Spec.Egress[i].Except {
			if !isSubnet(except, runner.Spec.Egress[i].CIDR) {
				bad("egress: " + except + " does not lie within " + runner.Spec.Egress[i].CIDR)
			}
		}
	}
	for i := range runner.Spec.Sidecars {
		if runner.Spec.Sidecars[i].Name == v1alpha1.RunnerContainer {
			bad("sidecar must not be named " + v1alpha1.RunnerContainer)
		}
		for _, problem := range validateResources(&runner.Spec.Sidecars[i].Resources, field.NewPath("sidecars").Index(i)) {
			bad(problem.Error())
		}
	}
	for i := range runner.Spec.Env {
		if name := runner.Spec.Env[i].Name; slices.Contains(operatorVariables, name) {
			bad("env: " + name + " is set by the operator")
		}
	}
	return errs
}

// isSubnet tells whether one network lies in another, and is not all of it.
func isSubnet(inner, outer string) bool {
	in, err := netip.ParsePrefix(inner)
	if err != nil {
		return false
	}
	out, err := netip.ParsePrefix(outer)
	return err == nil && in.Bits() > out.Bits() && out.Contains(in.Addr())
}

// resolveImage takes the session's image only if the SessionRunner names the very same: a
// pattern could be met by an image that nobody thought of.
func (r *runnerSettings) resolveImage(s *v1alpha1.AgenticSession) field.ErrorList {
	spec := &r.runner.Spec
	r.image = cmp.Or(s.Spec.Image, spec.Image)
	if r.image == spec.Image || slices.Contains(spec.AllowedImages, r.image) {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("spec", "image"), r.image, append([]string{spec.Image}, spec.AllowedImages...))}
}

func (r *runnerSettings) resolveWorkspace(s *v1alpha1.AgenticSession) field.ErrorList {
	most := defaultWorkspaceSize
	if r.runner.Spec.MaxWorkspaceSize != nil {
		most = *r.runner.Spec.MaxWorkspaceSize
	}
	r.class, r.size = r.runner.Spec.StorageClassName, defaultWorkspaceSize
	if r.size.Cmp(most) > 0 {
		r.size = most
	}
	r.persistent = s.Spec.ContinueFrom != nil
	workspace, at := s.Spec.Workspace, field.NewPath("spec", "workspace")
	if workspace == nil {
		return nil
	}
	var errs field.ErrorList
	r.persistent = workspace.Persistence != v1alpha1.WorkspaceEphemeral
	if workspace.Size != nil {
		r.size = *workspace.Size
		if r.size.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.size.String(), "must be greater than zero"))
		}
		if r.size.Cmp(most) > 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.size.String(), "SessionRunner "+r.runner.Name+" allows at most "+most.String()))
		}
	}
	if class := workspace.StorageClassName; class != nil && (r.class == nil || *class != *r.class) {
		errs = append(errs, field.Forbidden(at.Child("storageClassName"), "SessionRunner "+r.runner.Name+" does not allow this class"))
	}
	return errs
}

// checkVariablesAllowed refuses those that the SessionRunner sets.
func checkVariablesAllowed(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	var errs field.ErrorList
	for i := range runner.Spec.Env {
		name := runner.Spec.Env[i].Name
		if _, set := s.Spec.EnvironmentVariables[name]; set {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "environmentVariables").Key(name), "SessionRunner "+runner.Name+" sets this variable"))
		}
	}
	return errs
}

// checkSecretsAllowed refuses those that the SessionRunner does not name, if it names any.
func checkSecretsAllowed(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	if runner.Spec.AllowedSecrets == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(name string, at *field.Path) {
		if !slices.Contains(*runner.Spec.AllowedSecrets, name) {
			errs = append(errs, field.Forbidden(at, "SessionRunner "+runner.Name+" does not allow Secret "+name))
		}
	}
	at := field.NewPath("spec")
	for i := range s.Spec.EnvFrom {
		if secret := s.Spec.EnvFrom[i].SecretRef; secret != nil {
			check(secret.Name, at.Child("envFrom").Index(i).Child("secretRef", "name"))
		}
	}
	for i := range s.Spec.SecretMounts {
		check(s.Spec.SecretMounts[i].SecretName, at.Child("secretMounts").Index(i).Child("secretName"))
	}
	return errs
}

// checkActivityFields refuses what nobody could keep to: only a runner with a Lease can tell that
// it is idle, or has finished.
func checkActivityFields(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	if runner.Spec.ActivityLease {
		return nil
	}
	var errs field.ErrorList
	at, detail := field.NewPath("spec"), "SessionRunner "+runner.Name+" has no activityLease, so nobody can tell"
	if secondsOrDefault(s.Spec.InactivityTimeout, 0) > 0 {
		errs = append(errs, field.Forbidden(at.Child("inactivityTimeout"), detail))
	}
	if s.Spec.Interactive && s.Spec.StopOnRunFinished {
		errs = append(errs, field.Forbidden(at.Child("stopOnRunFinished"), detail))
	}
	return errs
}

func compareStrings(a, b string) int { return cmp.Compare(a, b) }

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
