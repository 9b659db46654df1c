package agenticsession

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

var defaultWorkspaceSize = resource.MustParse("10Gi")

// runnerSettings are the settings of a session, within the limits of its SessionRunner.
type runnerSettings struct {
	runner *v1alpha1.SessionRunner
	// template has the fields of the SessionRunner's template that exist: see templateOf.
	template  *corev1.PodTemplateSpec
	image     string
	resources corev1.ResourceRequirements
	// persistent means that the workspace is a PersistentVolumeClaim.
	persistent    bool
	storageClass  *string
	workspaceSize resource.Quantity
	accessMode    corev1.PersistentVolumeAccessMode
	// envFrom are the variables of the session's envFrom, sorted by name.
	envFrom []corev1.EnvVar
}

// container returns the runner's container in the template.
func (r *runnerSettings) container() *corev1.Container { return &r.template.Spec.Containers[0] }

// runnerChecks compare a session with the limits of its SessionRunner, and resolve the settings.
var runnerChecks = []func(*runnerSettings, *v1alpha1.AgenticSession) field.ErrorList{
	(*runnerSettings).validateRunner,
	(*runnerSettings).resolveImage,
	(*runnerSettings).resolveResources,
	(*runnerSettings).resolveWorkspace,
	(*runnerSettings).checkVariablesAllowed,
	(*runnerSettings).checkSecretMounts,
	(*runnerSettings).resolveEnvFrom,
	(*runnerSettings).checkActivityFields,
	(*runnerSettings).checkProxyUse,
	(*runnerSettings).checkModel,
	(*runnerSettings).checkRepositories,
}

// resolveSettings returns the settings of a session, and an error for each field that exceeds the limits of its
// SessionRunner.
func resolveSettings(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) (*runnerSettings, field.ErrorList) {
	settings := &runnerSettings{runner: runner, template: templateOf(&runner.Spec)}
	var errs field.ErrorList
	for _, check := range runnerChecks {
		errs = append(errs, check(settings, s)...)
	}
	return settings, errs
}

// ValidateWithRunner returns an error for each field of a session that exceeds the limits of its
// SessionRunner.
func ValidateWithRunner(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) field.ErrorList {
	_, errs := resolveSettings(s, runner)
	return errs
}

// validateRunner reports the errors of the SessionRunner for spec.runner, the only field with which a session can avoid them.
func (r *runnerSettings) validateRunner(*v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range ValidateRunner(r.runner) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "runner"), r.runner.Name, "the SessionRunner's "+problem.Error()))
	}
	return errs
}

// resolveImage accepts only images that the SessionRunner names exactly: a pattern could match unintended images.
func (r *runnerSettings) resolveImage(s *v1alpha1.AgenticSession) field.ErrorList {
	spec := &r.runner.Spec
	r.image = cmp.Or(s.Spec.Image, spec.Image)
	if r.image == spec.Image || slices.Contains(spec.Allowed.Images, r.image) {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("spec", "image"), r.image, append([]string{spec.Image}, spec.Allowed.Images...))}
}

func (r *runnerSettings) resolveWorkspace(s *v1alpha1.AgenticSession) field.ErrorList {
	maxSize := defaultWorkspaceSize
	if r.runner.Spec.Limits.MaxWorkspaceSize != nil {
		maxSize = *r.runner.Spec.Limits.MaxWorkspaceSize
	}
	r.storageClass, r.workspaceSize = r.runner.Spec.Workspace.StorageClassName, defaultWorkspaceSize
	if r.workspaceSize.Cmp(maxSize) > 0 {
		r.workspaceSize = maxSize
	}
	r.accessMode = cmp.Or(r.runner.Spec.Workspace.AccessMode, corev1.ReadWriteOnce)
	r.persistent = s.Spec.ContinueFrom != nil || s.Spec.Workspace != nil
	workspace, at := s.Spec.Workspace, field.NewPath("spec", "workspace")
	if workspace == nil {
		return nil
	}
	var errs field.ErrorList
	if workspace.Size != nil {
		r.workspaceSize = *workspace.Size
		if r.workspaceSize.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.workspaceSize.String(), "must be greater than zero"))
		}
		if r.workspaceSize.Cmp(maxSize) > 0 {
			errs = append(errs, field.Invalid(at.Child("size"), r.workspaceSize.String(), "SessionRunner "+r.runner.Name+" allows at most "+maxSize.String()))
		}
	}
	return errs
}

// checkVariablesAllowed rejects variables that the SessionRunner sets, or that would change its command.
func (r *runnerSettings) checkVariablesAllowed(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for _, variable := range r.container().Env {
		if _, set := s.Spec.EnvironmentVariables[variable.Name]; set {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "environmentVariables").Key(variable.Name), "SessionRunner "+r.runner.Name+" sets this variable"))
		}
	}
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if r.isExpandedInCommand(name) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "environmentVariables").Key(name), "the variable would replace $("+name+") in the command of SessionRunner "+r.runner.Name))
		}
	}
	return errs
}

// checkActivityFields rejects fields without effect: only a runner with a Lease can report that
// it is idle or finished.
func (r *runnerSettings) checkActivityFields(s *v1alpha1.AgenticSession) field.ErrorList {
	if r.runner.Spec.ActivityLease {
		return nil
	}
	var errs field.ErrorList
	at, detail := field.NewPath("spec"), "SessionRunner "+r.runner.Name+" has no activityLease, so activity cannot be measured"
	if decision.DurationOr(s.Spec.Limits.InactivityTimeout, 0) > 0 {
		errs = append(errs, field.Forbidden(at.Child("limits", "inactivityTimeout"), detail))
	}
	if s.Spec.Interactive && s.Spec.StopOnRunFinished {
		errs = append(errs, field.Forbidden(at.Child("stopOnRunFinished"), detail))
	}
	return errs
}

// checkRepositories refuses repositories that the SessionRunner does not give its credentials to, although it has credentials for their
// host: a user with the right to create sessions would read them with the rights of the SessionRunner. The git container checks again.
func (r *runnerSettings) checkRepositories(s *v1alpha1.AgenticSession) field.ErrorList {
	git := r.runner.Spec.Git
	if git == nil || git.SecretRef == nil {
		return nil
	}
	scope, err := sessiongit.ParseScope(git.Repositories)
	if err != nil {
		return nil // validateRunner reports it
	}
	var errs field.ErrorList
	refuse := func(url v1alpha1.GitURL, at *field.Path) {
		if refusal := scope.Refusal(string(url), r.runner.Name); refusal != "" {
			errs = append(errs, field.Forbidden(at.Child("url"), refusal))
		}
	}
	for i := range s.Spec.Repos {
		refuse(s.Spec.Repos[i].URL, field.NewPath("spec", "repos").Index(i))
	}
	if workflow := s.Spec.Agent.Workflow; workflow != nil {
		refuse(workflow.URL, field.NewPath("spec", "agent", "workflow"))
	}
	return errs
}

// isExpandedInCommand reports whether Kubernetes replaces $(name) in the SessionRunner's command or args by the value
// of a variable that a session sets. In a shell script, such as `echo $(date)`, the value would be executed.
func (r *runnerSettings) isExpandedInCommand(name string) bool {
	runner := r.container()
	if slices.ContainsFunc(runner.Env, func(variable corev1.EnvVar) bool { return variable.Name == name }) {
		return false // a session cannot change a variable of its SessionRunner
	}
	return slices.ContainsFunc(slices.Concat(runner.Command, runner.Args), func(text string) bool {
		return strings.Contains(strings.ReplaceAll(text, "$$", ""), "$("+name+")")
	})
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// The default resources of containers. They set all requests and limits, because a quota of the namespace may require
// them, and because they protect the node.
var (
	runnerDefaults = corev1.ResourceRequirements{
		Requests: resourceAmounts("100m", "256Mi", "1Gi"), Limits: resourceAmounts("1", "2Gi", "4Gi"),
	}
	sidecarDefaults = corev1.ResourceRequirements{
		Requests: resourceAmounts("10m", "32Mi", "64Mi"), Limits: resourceAmounts("500m", "256Mi", "1Gi"),
	}
)

func resourceAmounts(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cpu),
		corev1.ResourceMemory:           resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}

// validateResources validates amounts, apart from the SessionRunner's limits.
func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for part, list := range map[string]corev1.ResourceList{"requests": r.Requests, "limits": r.Limits} {
		for _, name := range sortedKeys(list) {
			if amount := list[name]; amount.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Child(part).Key(string(name)), amount.String(), "must not be negative"))
			}
		}
	}
	for _, name := range sortedKeys(r.Requests) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), request.String(), "must not be greater than the limit, "+limit.String()))
		}
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// fillResources merges amounts with defaults. A limit below the default request lowers the
// request, and a request above the default limit raises the limit.
func fillResources(r, defaults corev1.ResourceRequirements) corev1.ResourceRequirements {
	filled := corev1.ResourceRequirements{Requests: maps.Clone(defaults.Requests), Limits: maps.Clone(defaults.Limits)}
	maps.Copy(filled.Requests, r.Requests)
	maps.Copy(filled.Limits, r.Limits)
	for name, limit := range filled.Limits {
		request, requested := filled.Requests[name]
		switch _, isSet := r.Limits[name]; {
		case requested && request.Cmp(limit) <= 0:
		case isSet, !requested:
			filled.Requests[name] = limit
		default:
			filled.Limits[name] = request
		}
	}
	for name, request := range filled.Requests {
		if _, limited := filled.Limits[name]; !limited {
			filled.Limits[name] = request
		}
	}
	return filled
}

// resolveResources sets the resources of a session's runner, and returns an error for each
// amount that exceeds the SessionRunner's limits.
func (r *runnerSettings) resolveResources(s *v1alpha1.AgenticSession) field.ErrorList {
	runner := r.runner
	defaults := fillResources(r.container().Resources, capResources(runnerDefaults, runner.Spec.Limits.MaxResources))
	r.resources = defaults
	if s.Spec.Resources == nil {
		return nil
	}
	var errs field.ErrorList
	filled := fillResources(*s.Spec.Resources, defaults)
	at := field.NewPath("spec", "resources")
	for _, name := range sortedKeys(filled.Limits) {
		limit := filled.Limits[name]
		allowed, named := runner.Spec.Limits.MaxResources[name]
		if !named {
			allowed, named = defaults.Limits[name]
		}
		where := at.Child("limits").Key(string(name))
		if _, isSet := s.Spec.Resources.Limits[name]; !isSet {
			where = at.Child("requests").Key(string(name))
		}
		switch {
		case !named:
			errs = append(errs, field.Forbidden(where, "SessionRunner "+runner.Name+" does not allow this resource"))
		case limit.Cmp(allowed) > 0:
			errs = append(errs, field.Invalid(where, limit.String(), "SessionRunner "+runner.Name+" allows at most "+allowed.String()))
		}
	}
	r.resources = filled
	return errs
}

func capResources(r corev1.ResourceRequirements, maxAmounts corev1.ResourceList) corev1.ResourceRequirements {
	lower := func(list corev1.ResourceList) corev1.ResourceList {
		list = maps.Clone(list)
		for name, amount := range list {
			if limit, limited := maxAmounts[name]; limited && amount.Cmp(limit) > 0 {
				list[name] = limit
			}
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: lower(r.Requests), Limits: lower(r.Limits)}
}

// maxVariableNameLength limits the names of variables from envFrom: a prefix and a key.
const maxVariableNameLength = 256

// findSource returns the entry of a Secret or ConfigMap in a list of a SessionRunner, or nil.
func findSource(allowed []v1alpha1.SessionSource, name string) *v1alpha1.SessionSource {
	i := slices.IndexFunc(allowed, func(source v1alpha1.SessionSource) bool { return source.Name == name })
	if i < 0 {
		return nil
	}
	return &allowed[i]
}

func (r *runnerSettings) checkSecretMounts(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for i := range s.Spec.SecretMounts {
		name := s.Spec.SecretMounts[i].Name
		if findSource(r.runner.Spec.Allowed.Secrets, name) == nil {
			at := field.NewPath("spec", "secretMounts").Index(i).Child("name")
			errs = append(errs, field.Forbidden(at, "SessionRunner "+r.runner.Name+" does not allow Secret "+name+": add it to allowed.secrets of the SessionRunner"))
		}
	}
	return errs
}

// resolveEnvFrom expands the session's envFrom into a variable for each key that the SessionRunner lists, and rejects
// sources without listed keys. The envFrom of Kubernetes would also take keys that set reserved variables, and the
// operator does not read the Secrets and ConfigMaps of tenants.
func (r *runnerSettings) resolveEnvFrom(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	variables := map[string]corev1.EnvVar{}
	for i := range s.Spec.EnvFrom {
		source := newVariableSource(&s.Spec.EnvFrom[i], &r.runner.Spec)
		if source == nil {
			continue // Validate reports it
		}
		at := field.NewPath("spec", "envFrom").Index(i)
		if source.allowed == nil || len(source.allowed.Keys) == 0 {
			object, missing := source.kind+" "+source.name, ""
			if source.allowed == nil {
				missing = "does not allow " + object + ": add it, with the keys to use, to " + source.list
			} else {
				missing = "lists no keys of " + object + ", so it can only be mounted: use secretMounts, or add the keys to " + source.list
			}
			errs = append(errs, field.Forbidden(at.Child(source.field, "name"), "SessionRunner "+r.runner.Name+" "+missing+" of the SessionRunner"))
			continue
		}
		for _, key := range source.allowed.Keys {
			name := source.prefix + key
			if problem := r.validateVariableName(name); problem != "" {
				errs = append(errs, field.Forbidden(at, "key "+key+" of "+source.kind+" "+source.name+" sets the variable "+name+", "+problem+": set another prefix"))
				continue
			}
			variables[name] = corev1.EnvVar{Name: name, ValueFrom: source.valueFrom(key)} // the last source takes precedence, as in Kubernetes
		}
	}
	for _, name := range sortedKeys(variables) {
		r.envFrom = append(r.envFrom, variables[name])
	}
	return errs
}

// validateVariableName returns why a session cannot set a variable with this name; empty if it can.
func (r *runnerSettings) validateVariableName(name string) string {
	switch {
	case isReservedVariable(name):
		return "which is reserved"
	case len(name) > maxVariableNameLength || len(validation.IsEnvVarName(name)) > 0:
		return "which is not a valid name"
	case r.isExpandedInCommand(name):
		return "which would replace $(" + name + ") in the command of SessionRunner " + r.runner.Name
	}
	return ""
}

type variableSource struct {
	kind, name, prefix string
	// field is the entry's field that contains the name, and list the SessionRunner's list of allowed keys.
	field, list string
	// allowed is the object's entry in the list, or nil.
	allowed   *v1alpha1.SessionSource
	valueFrom func(key string) *corev1.EnvVarSource
}

// newVariableSource returns nil for an entry without an object.
func newVariableSource(from *corev1.EnvFromSource, runner *v1alpha1.SessionRunnerSpec) *variableSource {
	switch {
	case from.SecretRef != nil:
		ref := from.SecretRef
		return &variableSource{
			kind: "Secret", name: ref.Name, prefix: from.Prefix, field: "secretRef", list: "allowed.secrets",
			allowed: findSource(runner.Allowed.Secrets, ref.Name),
			valueFrom: func(key string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref.LocalObjectReference, Key: key, Optional: ref.Optional}}
			},
		}
	case from.ConfigMapRef != nil:
		ref := from.ConfigMapRef
		return &variableSource{
			kind: "ConfigMap", name: ref.Name, prefix: from.Prefix, field: "configMapRef", list: "allowed.configMaps",
			allowed: findSource(runner.Allowed.ConfigMaps, ref.Name),
			valueFrom: func(key string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref.LocalObjectReference, Key: key, Optional: ref.Optional}}
			},
		}
	}
	return nil
}
