package agentprofile

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Inputs are the values of the placeholders of a profile.
type Inputs struct {
	Prompt, SystemPrompt, Model, MaxTokens string
	// ModelURL of the proxy for the model; empty if the agent calls its model itself.
	ModelURL string
	// Conversation to resume; empty to start a new one.
	Conversation string
	// State is the directory in the workspace for the agent's state. Config is a directory outside of it that is deleted with the
	// Pod.
	State, Config    string
	WorkingDirectory string
	PermissionMode   string
	// Servers are the session's MCP servers, and Disabled the names of the profile's servers that it does not use.
	Servers  map[string]MCPServer
	Disabled []string
	// Arguments are further arguments of the agent; with the profile exec, they are the command.
	Arguments []string
}

// Command is the command line of an agent, with its environment and files.
type Command struct {
	Arguments []string
	// Env are variables in addition to the runner's variables.
	Env   map[string]string
	Stdin string
	Files []File
	// Unused are settings of the session that the agent does not support.
	Unused []string
}

const (
	argumentsPlaceholder  = "{arguments}"
	permissionPlaceholder = "{permissions}"
)

// placeholder is {name}, or {name|json} for the value as a JSON string, which TOML can read too.
var placeholder = regexp.MustCompile(`\{([a-zA-Z]+)(\|json)?\}`)

func (in *Inputs) values(mcp string) map[string]string {
	return map[string]string{
		"prompt": in.Prompt, "systemPrompt": in.SystemPrompt, "model": in.Model, "maxTokens": in.MaxTokens,
		"conversation": in.Conversation, "state": in.State, "config": in.Config, "workingDirectory": in.WorkingDirectory, "mcpServers": mcp,
		"modelURL": in.ModelURL,
	}
}

func checkPlaceholders(text string) error {
	known := (&Inputs{}).values("")
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		if _, found := known[match[1]]; !found && match[0] != argumentsPlaceholder && match[0] != permissionPlaceholder {
			return fmt.Errorf("%s is not a placeholder; those are {arguments}, {permissions} and %v", match[0], slices.Sorted(maps.Keys(known)))
		}
	}
	return nil
}

// NewCommand returns the command that starts the agent with these inputs.
func (p *Profile) NewCommand(in *Inputs) (*Command, error) {
	mcp, err := p.encodeServers(in)
	if err != nil {
		return nil, err
	}
	permissions, found := p.PermissionModes[in.PermissionMode]
	if !found && len(p.PermissionModes) > 0 {
		return nil, fmt.Errorf("profile %s has no permission mode %q; it has %v", p.Name, in.PermissionMode, slices.Sorted(maps.Keys(p.PermissionModes)))
	}
	x := expander{values: in.values(mcp), used: map[string]bool{}}
	c := &Command{Env: map[string]string{}, Arguments: x.group(p.Command)}
	for _, group := range p.Arguments {
		switch {
		case slices.Equal(group, []string{argumentsPlaceholder}):
			c.Arguments = append(c.Arguments, in.Arguments...)
		case slices.Equal(group, []string{permissionPlaceholder}):
			c.Arguments = append(c.Arguments, x.group(permissions)...)
		default:
			c.Arguments = append(c.Arguments, x.group(group)...)
		}
	}
	if len(c.Arguments) == 0 {
		return nil, fmt.Errorf("profile %s has no command: give it after --", p.Name)
	}
	for name, template := range p.Env {
		if value, complete := x.expand(template); complete {
			c.Env[name] = value
		}
	}
	c.Stdin, _ = x.expand(p.Stdin)
	for _, file := range p.Files {
		path, _ := x.expand(file.Path)
		content, _ := x.expand(file.Content)
		c.Files = append(c.Files, File{Path: path, Content: content})
	}
	c.Unused = x.unused(in)
	return c, nil
}

type expander struct {
	values map[string]string
	used   map[string]bool
}

// expand returns a text with the values of its placeholders, and whether all values are set.
func (x *expander) expand(template string) (text string, complete bool) {
	complete = true
	text = placeholder.ReplaceAllStringFunc(template, func(found string) string {
		match := placeholder.FindStringSubmatch(found)
		value := x.values[match[1]]
		x.used[match[1]] = true
		complete = complete && value != ""
		if match[2] != "" {
			return quote(value)
		}
		return value
	})
	return strings.TrimLeft(text, "\n"), complete
}

// group returns a group of arguments; nil if a value in it is empty.
func (x *expander) group(templates []string) []string {
	var arguments []string
	for _, template := range templates {
		argument, complete := x.expand(template)
		if !complete {
			return nil
		}
		arguments = append(arguments, argument)
	}
	return arguments
}

// unused returns the settings of the session that no placeholder contains.
func (x *expander) unused(in *Inputs) []string {
	var unused []string
	for _, setting := range []struct{ name, placeholder, value string }{
		{"agent.model", "model", in.Model},
		{"agent.maxTokens", "maxTokens", in.MaxTokens},
		{"the system prompt", "systemPrompt", in.SystemPrompt},
	} {
		if setting.value != "" && !x.used[setting.placeholder] {
			unused = append(unused, setting.name)
		}
	}
	if len(in.Servers) > 0 && !x.used["mcpServers"] {
		unused = append(unused, "agent.mcpServers")
	}
	return unused
}

// Quote returns a text as a JSON string.
func Quote(text string) json.RawMessage {
	raw, err := json.Marshal(text)
	if err != nil { // strings always marshal
		return json.RawMessage(`""`)
	}
	return raw
}

func quote(text string) string { return string(Quote(text)) }
