package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestOpensslVerifiesSignatures(t *testing.T) {
	for name, arguments := range map[string][]string{
		"a key of this command":        nil,
		"a key of openssl genpkey":     {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"},
		"a key of openssl ecparam":     {"ecparam", "-name", "prime256v1", "-genkey"},
		"a key without its parameters": {"ecparam", "-name", "prime256v1", "-genkey", "-noout"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			key, file := filepath.Join(directory, "key"), filepath.Join(directory, "checksums.txt")
			if arguments == nil {
				require.NoError(t, generate("", key))
			} else {
				openssl(t, append(arguments, "-out", key)...)
				openssl(t, "pkey", "-in", key, "-pubout", "-out", key+".pub")
			}
			write(t, file, "checksums")
			require.NoError(t, sign(key, file))
			decoded, err := base64.StdEncoding.DecodeString(string(read(t, file+".sig")))
			require.NoError(t, err)
			write(t, file+".der", string(decoded))
			verify := []string{"dgst", "-sha256", "-verify", key + ".pub", "-signature", file + ".der", file}
			openssl(t, verify...)
			write(t, file, "other checksums")
			if err := exec.CommandContext(t.Context(), "openssl", verify...).Run(); err == nil {
				t.Error("openssl verified another content")
			}
		})
	}
}

func TestBundleHasTheSignatureAndTheDigest(t *testing.T) {
	directory := t.TempDir()
	key, file := filepath.Join(directory, "key"), filepath.Join(directory, "checksums.txt")
	require.NoError(t, generate("", key))
	write(t, file, "checksums")
	require.NoError(t, sign(key, file))
	var bundle struct {
		MediaType        string
		MessageSignature struct {
			MessageDigest struct{ Algorithm, Digest string }
			Signature     string
		}
	}
	require.NoError(t, json.Unmarshal(read(t, file+".sigstore.json"), &bundle))
	require.True(t, bundle.MessageSignature.Signature+"\n" == string(read(t, file+".sig")),
		"the bundle has the signature %s", bundle.MessageSignature.Signature)
	// printf checksums | sha256sum | xxd -r -p | base64
	if digest := bundle.MessageSignature.MessageDigest; digest.Algorithm != "SHA2_256" || digest.Digest != "076xbKJ6n8MytV9SbhyNptsLL1jVDJ0n1Z4V4jpONag=" {
		t.Errorf("the bundle has the digest %s %s", digest.Algorithm, digest.Digest)
	}
}

func TestSameKeyAndContentGiveTheSameSignature(t *testing.T) {
	private, _, err := newKey()
	require.NoError(t, err)
	key, err := parseKey(private)
	require.NoError(t, err)
	var texts [][]byte
	for range 2 {
		signature, err := newSignature(key, []byte("checksums"))
		require.NoError(t, err)
		texts = append(texts, signature.text())
	}
	require.True(t, bytes.Equal(texts[0], texts[1]), "%s and %s", texts[0], texts[1])
}

func TestOtherKeysAreRefused(t *testing.T) {
	directory := t.TempDir()
	key := filepath.Join(directory, "key")
	for name, arguments := range map[string][]string{
		"RSA":               {"genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		"another curve":     {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"},
		"with a passphrase": {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-aes256", "-pass", "pass:secret"},
	} {
		t.Run(name, func(t *testing.T) {
			openssl(t, append(arguments, "-out", key)...)
			if err := sign(key, key); !errors.Is(err, errKey) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := parseKey([]byte("no key")); !errors.Is(err, errKey) {
		t.Errorf("no PEM: %v", err)
	}
}

func openssl(t *testing.T, arguments ...string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "openssl", arguments...).CombinedOutput()
	require.True(t, err == nil, "openssl %v: %v\n%s", arguments, err, output)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}
