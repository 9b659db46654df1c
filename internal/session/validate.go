package session

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxEnvironmentBytes is how many bytes the variables of a session may have, names and values
	// together: they must fit into a Secret, and into what a process can be started with.
	maxEnvironmentBytes = 256 << 10
	// maxMCPServersBytes is how many bytes mcpServers may have as JSON.
	maxMCPServersBytes = 64 << 10
)

// reservedPrefixes and reservedNames are those of environment variables that a session
// cannot set.
var (
	reservedPrefixes = []string{v1alpha1.SessionEnvPrefix, v1alpha1.WorkerEnvPrefix, "KUBERNETES_", "LD_"}
	reservedNames    = []string{"PATH", homeVariable, tempVariable}
)

// Validate tells what is wrong with a session whatever its SessionRunner allows, and the
// API server's own rules cannot refuse.
func Validate(s *v1alpha1.AgenticSession) field.ErrorList {
	spec, at := &s.Spec, field.NewPath("spec")
	errs := validateEnvironment(spec, at)
	errs = append(errs, validateEnvFrom(spec.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateSecretMounts(spec.SecretMounts, at.Child("secretMounts"))...)
	errs = append(errs, validateRepos(spec.Repos, at.Child("repos"))...)
	if spec.Resources != nil {
		errs = append(errs, validateResources(spec.Resources, at.Child("resources"))...)
	}
	if size := mcpServersBytes(spec.MCPServers); size > maxMCPServersBytes {
		errs = append(errs, field.TooLong(at.Child("mcpServers"), "", maxMCPServersBytes))
	}
	return errs
}

func validateEnvironment(spec *v1alpha1.AgenticSessionSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, name := range sortedKeys(spec.EnvironmentVariables) {
		value := spec.EnvironmentVariables[name]
		size += len(name) + len(value)
		if isReservedVariable(name) { // the API server refuses it, but not where its CRD is another
			errs = append(errs, field.Forbidden(at.Child("environmentVariables").Key(name), "the name is reserved"))
		}
		if strings.ContainsRune(string(value), 0) {
			errs = append(errs, field.Invalid(at.Child("environmentVariables").Key(name), "", "the value must not contain a NUL"))
		}
	}
	if size > maxEnvironmentBytes {
		errs = append(errs, field.TooLong(at.Child("environmentVariables"), "", maxEnvironmentBytes))
	}
	return errs
}

func isReservedVariable(name string) bool {
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(reservedNames, name)
}

func validateEnvFrom(sources []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		source, at := &sources[i], at.Index(i)
		if (source.SecretRef == nil) == (source.ConfigMapRef == nil) {
			errs = append(errs, field.Invalid(at, "", "give either secretRef or configMapRef"))
		}
		if source.SecretRef != nil {
			errs = append(errs, validateSecretName(source.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		if source.Prefix != "" && isReservedVariable(source.Prefix) {
			errs = append(errs, field.Invalid(at.Child("prefix"), source.Prefix, "the prefix is reserved"))
		}
	}
	return errs
}

func validateSecretMounts(mounts []v1alpha1.SecretMount, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i := range mounts {
		mount := &mounts[i]
		errs = append(errs, validateSecretName(mount.SecretName, at.Index(i).Child("secretName"))...)
		where := secretMountPath(mount)
		if path.Dir(where) != secretsPath || path.Clean(where) != where {
			errs = append(errs, field.Invalid(at.Index(i).Child("mountPath"), where, "must be a directory in "+secretsPath))
		}
		if taken[where] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("mountPath"), where))
		}
		taken[where] = true
	}
	return errs
}

// validateSecretName refuses the inputs of sessions: they are their users' own.
func validateSecretName(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case inputsNamePattern.MatchString(name):
		return field.ErrorList{field.Forbidden(at, "the inputs of sessions are for their own runners only")}
	default:
		return nil
	}
}

// validateRepos refuses two in one directory.
func validateRepos(repos []v1alpha1.SessionRepo, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i := range repos {
		name := repoDirectory(&repos[i])
		if taken[name] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), name))
		}
		taken[name] = true
	}
	return errs
}

// repoDirectory is the name of a repository's directory in the workspace.
func repoDirectory(repo *v1alpha1.SessionRepo) string {
	if repo.Name != "" {
		return repo.Name
	}
	url := strings.TrimRight(string(repo.URL), "/")
	if i := strings.LastIndexAny(url, "/:"); i >= 0 {
		url = url[i+1:]
	}
	return strings.TrimSuffix(url, ".git")
}
