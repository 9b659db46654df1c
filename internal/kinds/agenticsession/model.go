package agenticsession

import (
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
)

var (
	// modelLogins are variables with which agents call their model with a login of their own. Nothing outside of the agent then knows
	// what it spends.
	modelLogins = []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
		"AWS_BEARER_TOKEN_BEDROCK", "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
		"GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY",
		"XAI_API_KEY", "GROQ_API_KEY",
	}
	// modelURLs are variables with the address of a model, which the runner sets to the proxy's.
	modelURLs = []string{"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"}
)

// validateModel refuses a SessionRunner whose agent could call its model beside the proxy, and a limit of the cost that nothing holds.
func validateModel(runner *v1alpha1.SessionRunner) field.ErrorList {
	spec, at := &runner.Spec, field.NewPath("spec", "model")
	var errs field.ErrorList
	for i, variable := range templateOf(spec).Spec.Containers[0].Env {
		at := podPath.Child("containers").Index(0).Child("env").Index(i)
		const beside = "the agent could call its model beside the proxy of spec.model, which sets what it needs"
		errs = append(errs, modelVariableErrors(variable.Name, at, spec.Model != nil, spec.Limits.MaxCostUSD != nil, beside)...)
	}
	model := spec.Model
	if model == nil {
		return errs
	}
	key := modelproxy.KeyOf(model.Provider)
	if key == "" { // an older CRD may not reject it
		return append(errs, field.NotSupported(at.Child("provider"), model.Provider, []string{"Anthropic", "Google", "OpenAI"}))
	}
	errs = append(errs, validateName(model.SecretRef.Name, at.Child("secretRef", "name"))...)
	base, err := url.Parse(model.BaseURL)
	isValid := err == nil && slices.Contains([]string{"http", "https"}, base.Scheme) && base.Host != "" && base.User == nil && base.RawQuery == ""
	if model.BaseURL != "" && !isValid {
		errs = append(errs, field.Invalid(at.Child("baseURL"), model.BaseURL, "it is not an http or https URL without user and query"))
	}
	if model.Prices != nil {
		errs = append(errs, validateName(model.Prices.Name, at.Child("prices", "name"))...)
	}
	if spec.Network.Port == modelproxy.Port {
		errs = append(errs, field.Invalid(field.NewPath("spec", "network", "port"), spec.Network.Port, "it is the port of the proxy of spec.model"))
	}
	return append(errs, secretErrors(spec, model.SecretRef.Name, []string{key}, "the agent could read the key of the model")...)
}

// checkModel refuses variables with which the agent could call its model beside the proxy, and a limit of the cost that nothing holds.
func (r *runnerSettings) checkModel(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	at, isMetered := field.NewPath("spec"), r.runner.Spec.Model != nil
	isLimited := s.Spec.Limits.MaxCostUSD != nil || r.runner.Spec.Limits.MaxCostUSD != nil
	check := func(name string, at *field.Path) {
		beside := "the agent could call its model beside the proxy of SessionRunner " + r.runner.Name + " with " + name
		errs = append(errs, modelVariableErrors(name, at, isMetered, isLimited, beside)...)
	}
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		check(name, at.Child("environmentVariables").Key(name))
	}
	for _, variable := range r.envFrom {
		check(variable.Name, at.Child("envFrom"))
	}
	if s.Spec.Limits.MaxCostUSD != nil { // otherwise validateModel refuses the SessionRunner
		for _, variable := range r.container().Env {
			if !isMetered {
				check(variable.Name, at.Child("limits", "maxCostUSD"))
			}
		}
	}
	return errs
}

// modelVariableErrors refuses a variable with which the agent could call its model beside the proxy, with the message beside, or
// with a login whose cost nothing measures although it is limited.
func modelVariableErrors(name string, at *field.Path, isMetered, isLimited bool, beside string) field.ErrorList {
	switch {
	case isMetered && slices.Contains(slices.Concat(modelLogins, modelURLs), name):
		return field.ErrorList{field.Forbidden(at, beside)}
	case !isMetered && isLimited && slices.Contains(modelLogins, name):
		return field.ErrorList{field.Forbidden(at, "maxCostUSD would not hold: with "+name+", the agent calls its model with a login whose cost nothing measures; "+
			"set spec.model of the SessionRunner, with a key of Anthropic, OpenAI or Google, or remove maxCostUSD")}
	}
	return nil
}
