{{- /*
The objects are those of deploy/base, which `base` leads to, and of the components `page` and `page-tls`. Here a value changes an object in place; what no
value names stays as it is there.
*/ -}}

{{- define "edl.checkNamespace" -}}
{{- if ne .Release.Namespace "edl-system" -}}
{{- fail (printf "EDL is installed in the namespace edl-system, not in %s: add --namespace edl-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{- define "edl.checkImage" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set: name the image that you have built and pushed, such as --set image.repository=registry.example/edl (docs/install.md, section 1)" -}}
{{- end -}}
{{- end -}}

{{- /* The registrations have names of the cluster; `helm template` sees no cluster, and finds none. */ -}}
{{- define "edl.checkOther" -}}
{{- $other := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "edl-webhook" -}}
{{- if $other -}}
{{- $owner := get (default dict $other.metadata.annotations) "meta.helm.sh/release-name" -}}
{{- if ne $owner .Release.Name -}}
{{- fail (printf "another EDL is installed (%s): two would plan the same Jobs. Remove it first, jobs run on (docs/install.md, Removing it)" (ternary (printf "by the release %s" $owner) "without Helm" (ne $owner ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the object belongs to this installation; takes (root, object). */ -}}
{{- define "edl.wanted" -}}
{{- $root := index . 0 -}}{{- $object := index . 1 -}}
{{- $values := $root.Values -}}{{- $name := $object.metadata.name -}}{{- $kind := $object.kind -}}
{{- $server := trimPrefix "edl-" $name -}}
{{- if and (eq $name "edl-extender") (not $values.extender.enabled) -}}
{{- else if and (eq $kind "NetworkPolicy") (not $values.networkPolicies.enabled) -}}
{{- else if and (eq $kind "PodDisruptionBudget") (lt (int (index $values $server).replicas) 2) -}}
{{- else if and (eq $kind "ClusterRoleBinding") (eq $name "edl-reconciler-jobs") $values.namespaces -}}
{{- else -}}true{{- end -}}
{{- end -}}

{{- /* Changes the object; takes (root, object). */ -}}
{{- define "edl.configure" -}}
{{- $root := index . 0 -}}{{- $object := index . 1 -}}{{- $values := $root.Values -}}
{{- if eq $object.kind "Deployment" -}}
{{- include "edl.configureServer" . -}}
{{- else if and (eq $object.kind "ConfigMap") (eq $object.metadata.name "edl-policy") -}}
{{- $document := merge (dict "apiVersion" "edl.training/v1" "kind" "Policy") $values.policy -}}
{{- $_ := set $object "data" (dict "policy.yaml" (printf "%s\n" (toYaml $document))) -}}
{{- else if and (eq $object.metadata.name "edl-reconciler-jobs") $values.networkPolicies.jobs (hasKey $object "rules") -}}
{{- $rule := dict "apiGroups" (list "networking.k8s.io") "resources" (list "networkpolicies") "verbs" (list "get" "create") -}}
{{- $_ := set $object "rules" (append $object.rules $rule) -}}
{{- end -}}
{{- end -}}

{{- define "edl.configureServer" -}}
{{- $root := index . 0 -}}{{- $object := index . 1 -}}{{- $values := $root.Values -}}
{{- $server := index $values (trimPrefix "edl-" $object.metadata.name) -}}
{{- $pod := $object.spec.template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- if $server.replicas -}}{{- $_ := set $object.spec "replicas" (int $server.replicas) -}}{{- end -}}
{{- $image := $values.image -}}
{{- $suffix := ternary (printf ":%s" $image.tag) (printf "@%s" $image.digest) (empty $image.digest) -}}
{{- $_ := set $container "image" (printf "%s%s" $image.repository $suffix) -}}
{{- $_ := set $container "resources" $server.resources -}}
{{- if $server.tlsSecret -}}
{{- $flags := list "--listen" ":8446" "--tls-cert" "/run/edl-page/tls.crt" "--tls-key" "/run/edl-page/tls.key" -}}
{{- $_ := set $container "command" (concat $container.command $flags) -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "https" "containerPort" 8446)) -}}
{{- $_ := set $container "volumeMounts" (list (dict "name" "certificate" "mountPath" "/run/edl-page" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (list (dict "name" "certificate" "secret" (dict "secretName" $server.tlsSecret))) -}}
{{- end -}}
{{- $env := list -}}
{{- range $setting, $value := $server.settings -}}
{{- $text := ternary (join "," $value) (ternary $value (toJson $value) (kindIs "string" $value)) (kindIs "slice" $value) -}}
{{- $variable := printf "EDL_%s_%s" (trimPrefix "edl-" $object.metadata.name) (snakecase $setting) | upper -}}
{{- $env = append $env (dict "name" $variable "value" $text) -}}
{{- end -}}
{{- if $env -}}{{- $_ := set $container "env" $env -}}{{- end -}}
{{- range $field := list "nodeSelector" "tolerations" "imagePullSecrets" -}}
{{- with index $values $field -}}{{- $_ := set $pod $field . -}}{{- end -}}
{{- end -}}
{{- with $values.affinity -}}{{- $_ := set $pod "affinity" (merge (deepCopy .) (default dict $pod.affinity)) -}}{{- end -}}
{{- if eq $values.spread "required" -}}
{{- range $constraint := $pod.topologySpreadConstraints -}}
{{- if eq $constraint.topologyKey "kubernetes.io/hostname" -}}
{{- $_ := set $constraint "whenUnsatisfiable" "DoNotSchedule" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
