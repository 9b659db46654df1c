package agentprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MCPServer is a server of tools: a program that Command starts, or a URL.
type MCPServer struct {
	// Type is http or sse, for a URL. Default: http.
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

func (s *MCPServer) validate() error {
	switch {
	case (s.URL == "") == (s.Command == ""):
		return errors.New("set url or command")
	case s.Type != "" && s.Type != "http" && s.Type != "sse" && s.Type != "stdio":
		return fmt.Errorf("type is %q, it must be http, sse or stdio", s.Type)
	case s.Type == "stdio" && s.Command == "":
		return errors.New("type stdio needs a command")
	}
	return nil
}

func (s *MCPServer) transport() string {
	if s.Command != "" {
		return "stdio"
	}
	if s.Type == "" {
		return "http"
	}
	return s.Type
}

// MCPFormat is the format in which an agent reads its MCP servers.
type MCPFormat string

// The formats.
const (
	// MCPClaude is the value of mcpServers in the files of Claude Code.
	MCPClaude MCPFormat = "claude"
	// MCPCodex are tables of Codex' config.toml.
	MCPCodex MCPFormat = "codex"
	// MCPGemini is the value of mcpServers in the settings of Gemini CLI.
	MCPGemini MCPFormat = "gemini"
	// MCPOpenCode is the value of mcp in the configuration of OpenCode.
	MCPOpenCode MCPFormat = "opencode"
)

var mcpEncoders = map[MCPFormat]func(map[string]MCPServer) (string, error){
	MCPClaude: encodeClaudeServers, MCPCodex: encodeCodexServers, MCPGemini: encodeGeminiServers, MCPOpenCode: encodeOpenCodeServers,
}

// encodeServers returns the session's and the profile's servers in the agent's format.
func (p *Profile) encodeServers(in *Inputs) (string, error) {
	servers := merged(p.MCPServers, in.Servers)
	servers = maps.Clone(servers)
	for _, name := range in.Disabled {
		if _, own := in.Servers[name]; !own {
			delete(servers, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		if err := server.validate(); err != nil {
			return "", fmt.Errorf("MCP server %s: %w", name, err)
		}
	}
	if p.MCPFormat == "" {
		return "", nil
	}
	return mcpEncoders[p.MCPFormat](servers)
}

func encodeServerMap[T any](servers map[string]MCPServer, convert func(*MCPServer) T) (string, error) {
	converted := map[string]T{}
	for name, server := range servers {
		converted[name] = convert(&server)
	}
	raw, err := json.Marshal(converted)
	return string(raw), err
}

func encodeClaudeServers(servers map[string]MCPServer) (string, error) {
	return encodeServerMap(servers, func(s *MCPServer) MCPServer {
		converted := *s
		converted.Type = s.transport()
		return converted
	})
}

func encodeGeminiServers(servers map[string]MCPServer) (string, error) {
	type server struct {
		HTTPURL string            `json:"httpUrl,omitempty"` //nolint:tagliatelle // the spelling of Gemini CLI
		URL     string            `json:"url,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Command string            `json:"command,omitempty"`
		Args    []string          `json:"args,omitempty"`
		Env     map[string]string `json:"env,omitempty"`
	}
	return encodeServerMap(servers, func(s *MCPServer) server {
		converted := server{URL: s.URL, Headers: s.Headers, Command: s.Command, Args: s.Args, Env: s.Env}
		if s.transport() == "http" {
			converted.HTTPURL, converted.URL = s.URL, ""
		}
		return converted
	})
}

func encodeOpenCodeServers(servers map[string]MCPServer) (string, error) {
	type server struct {
		Type        string            `json:"type"`
		URL         string            `json:"url,omitempty"`
		Headers     map[string]string `json:"headers,omitempty"`
		Command     []string          `json:"command,omitempty"`
		Environment map[string]string `json:"environment,omitempty"`
	}
	return encodeServerMap(servers, func(s *MCPServer) server {
		if s.Command != "" {
			return server{Type: "local", Command: append([]string{s.Command}, s.Args...), Environment: s.Env}
		}
		return server{Type: "remote", URL: s.URL, Headers: s.Headers}
	})
}

// encodeCodexServers writes TOML. Its basic strings have the escapes of JSON.
func encodeCodexServers(servers map[string]MCPServer) (string, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		fmt.Fprintf(&b, "[mcp_servers.%s]\n", quote(name))
		if server.transport() == "sse" {
			return "", fmt.Errorf("MCP server %s: Codex has no type sse", name)
		}
		if server.Command != "" {
			var args []string
			for _, arg := range server.Args {
				args = append(args, quote(arg))
			}
			fmt.Fprintf(&b, "command = %s\nargs = [%s]\nenv = %s\n", quote(server.Command), strings.Join(args, ", "), inlineTable(server.Env))
			continue
		}
		fmt.Fprintf(&b, "url = %s\nhttp_headers = %s\n", quote(server.URL), inlineTable(server.Headers))
	}
	return b.String(), nil
}

func inlineTable(values map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, quote(name)+" = "+quote(values[name]))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}
