package agentprofile

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed profiles/*.yaml
var builtIn embed.FS

// Profile defines how an agent is started and how its output is read. docs/reference/session-runner.md is its reference.
type Profile struct {
	// Name of the profile, and of the agent's directory for its state.
	Name string `json:"name"`
	// Base is the name of a built-in profile, whose values apply to fields that are not set.
	Base string `json:"base,omitempty"`
	// Parser of the output.
	Parser ParserName `json:"parser,omitempty"`
	// Command is the program. Each element of Arguments is a group, which is omitted if a value in it is empty.
	Command   []string   `json:"command,omitempty"`
	Arguments [][]string `json:"arguments,omitempty"`
	// Env are variables of the agent. A variable whose value contains an empty value is omitted.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is written to the agent's standard input.
	Stdin string `json:"stdin,omitempty"`
	// PermissionModes are the arguments for each mode.
	PermissionModes map[string][]string `json:"permissionModes,omitempty"`
	// Files are written before the agent starts.
	Files []File `json:"files,omitempty"`
	// MCPFormat is the format of {mcpServers}.
	MCPFormat MCPFormat `json:"mcpFormat,omitempty"`
	// MCPServers are servers that each session uses unless it disables them.
	MCPServers map[string]MCPServer `json:"mcpServers,omitempty"`
	// Totals is the scope of the sums of tokens and cost that the agent reports.
	Totals Totals `json:"totals,omitempty"`
	// ZeroCostIsUnknown means that the agent reports a cost of zero for models with unknown prices.
	ZeroCostIsUnknown bool `json:"zeroCostIsUnknown,omitempty"`
	// Prices of models. They take precedence over the agent's cost.
	Prices map[string]Price `json:"prices,omitempty"`
}

// File is a configuration file of the agent.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// Totals is the scope of an agent's sums.
type Totals string

// The scopes of sums.
const (
	// TotalsOfProcess are sums since the agent's process started.
	TotalsOfProcess Totals = "process"
	// TotalsOfConversation are sums since the conversation started, including earlier processes.
	TotalsOfConversation Totals = "conversation"
)

// Price of a model, in US dollars per million tokens.
type Price struct {
	Input      float64 `json:"input"`
	CacheRead  float64 `json:"cacheRead,omitempty"`
	CacheWrite float64 `json:"cacheWrite,omitempty"`
	Output     float64 `json:"output"`
}

func (p Price) cost(u Usage) float64 {
	const million = 1e6
	return (float64(u.InputTokens)*p.Input + float64(u.CacheReadTokens)*p.CacheRead +
		float64(u.CacheWriteTokens)*p.CacheWrite + float64(u.OutputTokens)*p.Output) / million
}

// BuiltIn returns the names of the built-in profiles.
func BuiltIn() []string {
	entries, err := builtIn.ReadDir("profiles")
	if err != nil { // it is part of the program
		return nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	return names
}

// Load returns a built-in profile.
func Load(name string) (*Profile, error) {
	if !slices.Contains(BuiltIn(), name) {
		return nil, fmt.Errorf("there is no profile %q; the built-in profiles are %s", name, strings.Join(BuiltIn(), ", "))
	}
	raw, err := builtIn.ReadFile("profiles/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

// Parse returns the profile in a file, YAML or JSON.
func Parse(raw []byte) (*Profile, error) {
	p := &Profile{}
	if err := yaml.UnmarshalStrict(raw, p); err != nil {
		return nil, err
	}
	if p.Base != "" {
		base, err := Load(p.Base)
		if err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
		p.applyBase(base)
	}
	return p, p.validate()
}

// applyBase fills in fields that are not set. It adds the base's variables, modes, servers and prices.
func (p *Profile) applyBase(base *Profile) {
	setDefault(&p.Name, base.Name)
	setDefault(&p.Parser, base.Parser)
	setDefault(&p.Stdin, base.Stdin)
	setDefault(&p.MCPFormat, base.MCPFormat)
	setDefault(&p.Totals, base.Totals)
	p.ZeroCostIsUnknown = p.ZeroCostIsUnknown || base.ZeroCostIsUnknown
	if p.Command == nil {
		p.Command = base.Command
	}
	if p.Arguments == nil {
		p.Arguments = base.Arguments
	}
	if p.Files == nil {
		p.Files = base.Files
	}
	p.Env = merged(base.Env, p.Env)
	p.PermissionModes = merged(base.PermissionModes, p.PermissionModes)
	p.MCPServers = merged(base.MCPServers, p.MCPServers)
	p.Prices = merged(base.Prices, p.Prices)
}

func setDefault[T ~string](value *T, fallback T) {
	if *value == "" {
		*value = fallback
	}
}

func merged[V any](base, own map[string]V) map[string]V {
	all := maps.Clone(base)
	if all == nil {
		return own
	}
	maps.Copy(all, own)
	return all
}

func (p *Profile) validate() error {
	var errs []error
	if p.Name == "" || strings.ContainsAny(p.Name, "/\\ ") || strings.HasPrefix(p.Name, ".") {
		errs = append(errs, fmt.Errorf("name is %q, it must be a name without spaces and slashes", p.Name))
	}
	if _, found := parsers[p.Parser]; !found {
		errs = append(errs, fmt.Errorf("parser is %q, it must be one of %v", p.Parser, ParserNames()))
	}
	if p.MCPFormat != "" && mcpEncoders[p.MCPFormat] == nil {
		errs = append(errs, fmt.Errorf("mcpFormat is %q, it must be one of %v", p.MCPFormat, slices.Sorted(maps.Keys(mcpEncoders))))
	}
	if !slices.Contains([]Totals{"", TotalsOfProcess, TotalsOfConversation}, p.Totals) {
		errs = append(errs, fmt.Errorf("totals is %q, it must be %s or %s", p.Totals, TotalsOfProcess, TotalsOfConversation))
	}
	for _, model := range slices.Sorted(maps.Keys(p.Prices)) {
		if price := p.Prices[model]; min(price.Input, price.Output, price.CacheRead, price.CacheWrite) < 0 {
			errs = append(errs, fmt.Errorf("prices: a price of %s is negative", model))
		}
	}
	for _, text := range p.templates() {
		if err := checkPlaceholders(text); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *Profile) templates() []string {
	texts := slices.Concat(p.Command, []string{p.Stdin})
	for _, group := range p.Arguments {
		texts = append(texts, group...)
	}
	for _, mode := range slices.Sorted(maps.Keys(p.PermissionModes)) {
		texts = append(texts, p.PermissionModes[mode]...)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		texts = append(texts, p.Env[name])
	}
	for _, file := range p.Files {
		texts = append(texts, file.Path, file.Content)
	}
	return texts
}
