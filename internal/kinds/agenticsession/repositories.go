package agenticsession

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

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
