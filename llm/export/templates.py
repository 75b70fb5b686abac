"""Chat templates of public models, with the results of Hugging Face's `apply_chat_template`:
`../tests/templates.json`.

The templates are written for this file from the models' prompt documentation, with the idioms of
the originals. Requires `transformers`, whose Jinja environment is used, and `jinja2`.
"""

from __future__ import annotations

import json
from pathlib import Path

from transformers.utils import chat_template_utils

OUT = Path(__file__).parent.parent / "tests" / "templates.json"

LLAMA31 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message is taken out, to be put where it belongs. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to these functions." }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given these functions, answer with a call.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

QWEN3 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each call: <tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

MISTRAL = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- This block checks for alternating user/assistant messages, skipping tool calling messages #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}
            {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

PHI = "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"

PHI4 = "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"

DEEPSEEK = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none %}{{'<|Assistant|><|tool_calls_begin|><|tool_call_begin|>' + tool['type'] + '<|tool_sep|>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments']|tojson + '\n' + '```' + '<|tool_call_end|>'}}{%- else %}{{'<|Assistant|>' + message['content'] + '<|tool_calls_begin|><|tool_call_begin|>' + tool['type'] + '<|tool_sep|>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments']|tojson + '\n' + '```' + '<|tool_call_end|>'}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<|tool_call_begin|>' + tool['type'] + '<|tool_sep|>' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<|tool_calls_end|><|end_of_sentence|>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'<|tool_outputs_end|>' + message['content'] + '<|end_of_sentence|>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<|Assistant|>' + content + '<|end_of_sentence|>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<|tool_outputs_begin|><|tool_output_begin|>' + message['content'] + '<|tool_output_end|>'}}{%- set ns.is_output_first = false %}{%- else %}{{'<|tool_output_begin|>' + message['content'] + '<|tool_output_end|>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<|tool_outputs_end|>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|><think>\n'}}{% endif %}"""

SMOLLM = r"""{# Tools are written as Python writes them, and what the assistant said is marked for training. #}
{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- if enable_thinking -%}
  {%- set reasoning_mode = "/think" -%}
{%- else -%}
  {%- set reasoning_mode = "/no_think" -%}
{%- endif -%}
{{- "<|im_start|>system\n" -}}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}
    {%- set reasoning_mode = "/no_think" -%}
  {%- endif -%}
  {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "Reasoning Mode: " + reasoning_mode + "\n\n" -}}
{%- if custom_instructions -%}
{{- custom_instructions + "\n\n" -}}
{%- endif -%}
{%- if xml_tools or python_tools or tools -%}
  {{- "### Tools\n\n" -}}
  {%- if xml_tools or tools -%}
    {%- if tools -%}
        {%- set xml_tools = tools -%}
    {%- endif -%}
    {%- set ns = namespace(xml_tool_string="<tools>\n") -%}
    {%- for tool in xml_tools[:] -%}
      {%- set ns.xml_tool_string = ns.xml_tool_string ~ (tool | string) ~ "\n" -%}
    {%- endfor -%}
    {%- set xml_tool_string = ns.xml_tool_string + "</tools>" -%}
    {{- xml_tool_string -}}
  {%- endif -%}
  {{- "\n\n" -}}
{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}
    {{ "<|im_start|>" + "user\n"  + content + "<|im_end|>\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {%- if reasoning_mode == "/think" -%}
        {{ "<|im_start|>assistant\n" }}
    {%- else -%}
        {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n"  }}
    {%- endif -%}
{%- endif -%}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

COMMAND = (
    r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START|><|SYSTEM|>' + system_message + '<|END|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START|><|USER|>' + content.strip() + '<|END|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START|><|CHATBOT|>'  + content.strip() + '<|END|>' }}{% endif %}{% endfor %}{% if tools %}{% for tool in tools %}{% if loop.index0 != 0 %}{{ '\n\n' }}{% endif %}{{ '```python\ndef ' + tool.function.name + '(' }}{% for param_name, param_fields in tool.function.parameters.properties.items() %}{% if loop.index0 != 0 %}{{ ', ' }}{% endif %}{{ param_name + ': ' }}{% if not param_name in tool.function.parameters.required %}{{ 'Optional[' + param_fields.type + '] = None' }}{% else %}{{ param_fields.type }}{% endif %}{% endfor %}{{ ') -> List[Dict]:\n    """
    " ~ tool.function.description ~ "
    """\n    pass\n```' }}{% endfor %}{% endif %}{% if add_generation_prompt %}{{ '<|START|><|CHATBOT|>' }}{% endif %}"""
)

# TypeScript types, rendered by mutually recursive macros.
HARMONY = r"""{%- macro render_type(spec, required, is_nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {%- if spec['items']['type'] == "string" -%}
                {{- "string[]" }}
            {%- elif spec['items']['type'] in ["number", "integer"] -%}
                {{- "number[]" }}
            {%- else -%}
                {{- render_type(spec['items'], required) + "[]" }}
            {%- endif -%}
            {%- if spec.nullable -%}
                {{- " | null" }}
            {%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}
            {{- spec.type | join(" | ") }}
        {%- else -%}
            {{- spec.type[0] }}
        {%- endif -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}
            {{- '"' + spec.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
        {%- endif -%}
    {%- elif spec.type == "number" or spec.type == "integer" -%}
        {{- "number" }}
    {%- elif spec.type == "boolean" -%}
        {{- "boolean" }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\n" }}
            {%- for name, inner in spec.properties.items() -%}
                {{- name -}}
                {%- if name not in (spec.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{ render_type(inner, spec.required or []) }}
                {%- if not loop.last -%}
                    {{-", " }}
                {%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
{%- endmacro -%}
{%- macro render_tools(namespace_name, tools) -%}
    {{- "## " + namespace_name + "\n\nnamespace " + namespace_name + " {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\ntype "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for name, spec in tool.parameters.properties.items() %}
                {%- if spec.description %}
                    {{- "// " + spec.description + "\n" }}
                {%- endif %}
                {{- name }}
                {%- if name not in (tool.parameters.required or []) -%}
                    {{- "?" }}
                {%- endif -%}
                {{- ": " }}
                {{- render_type(spec, tool.parameters.required or []) }}
                {%- if spec.default is defined -%}
                    {%- if spec.enum %}
                        {{- ", // default: " + spec.default }}
                    {%- elif spec.oneOf %}
                        {{- "// default: " + spec.default }}
                    {%- else %}
                        {{- ", // default: " + spec.default|tojson }}
                    {%- endif -%}
                {%- endif -%}
                {%- if not loop.last %}
                    {{- ",\n" }}
                {%- else %}
                    {{- "\n" }}
                {%- endif -%}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}
            {{- "() => any;\n\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + namespace_name }}
{%- endmacro -%}
{%- if tools -%}{{ render_tools("functions", tools) }}{%- endif -%}
{%- set loop_messages = messages[1:] if messages[0].role in ('system', 'developer') else messages -%}
{%- set last_tool_call = namespace(name=none) -%}
{%- for message in loop_messages -%}
    {%- if loop.index0 > 20 %}{% break %}{% endif -%}
    {%- if message.role == 'system' %}{% continue %}{% endif -%}
    {%- if 'tool_calls' in message %}
        {%- set call = message.tool_calls[0].function %}
        {%- set last_tool_call.name = call.name %}
        {{- "<|start|>assistant to=functions." ~ call.name ~ "<|message|>" ~ call.arguments|tojson ~ "<|call|>" }}
    {%- elif message.role == 'tool' %}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}
        {%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + "<|message|>" + message.content|tojson + "<|end|>" }}
    {%- else %}
        {{- "<|start|>" ~ message.role ~ "<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif %}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

# Features of Jinja and Python that templates use, one template each.
PIECES = [
    "{{ true }} {{ false }} {{ none }} {{ 1 }} {{ 1.0 }} {{ 0.1 }} {{ 1e16 }} {{ 1e-7 }} {{ 123456789.125 }} {{ missing }}",
    "{{ ['a', \"it's\", 'say \"x\"', 1, 2.5, none, true] }} {{ {'k': ['v'], 'n': {}} }} {{ (1, 2) }} {{ (1,) }} {{ [] }} {{ '\\\\n' }}",
    "{{ messages[0] }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ ['x'] ~ missing ~ 'b' }}",
    "{{ 1 + 2 ~ 3 * 2 ~ 'x' ~ 7 // 2 ~ -1 ~ 5 % 3 }} {{ 'a' ~ 'b' == 'ab' }} {{ 'x' if 'a' ~ 'b' in 'cab' else 'y' }}",
    "{% set x = 'a' ~ 'b' | upper ~ ('c' ~ 'd') | upper %}{{ x ~ {'a': 1}['a'] ~ [1, 2][1] ~ x[0:1] ~ x.lower() }}",
    "{{ not 'a' ~ 'b' }} {{ 'a' is string ~ 'b' }} {{ 1 is not none and 'x' ~ 'y' }} {{ ('a' ~ 'b') is defined }}",
    "{{- 'a'~'b'~\"c'~'\" -}} {# a ~ b {{ #} {% raw %}{{ a ~ b }}{% endraw %} {{ '}}' ~ '%}' }}",
    "{{ [1, 'a', none, true, 1.5, ['x']] | join('-') }} {{ '-'.join(['a', 'b']) }} {{ 'abc' | join(',') }} {{ messages | join(' ', attribute='role') }} {{ messages | join(d='/', attribute='role') }} {{ [{'a': {'b': 7}}] | join(attribute='a.b') }}",
    "{{ (1, 2) | string }} {{ {'a': none} | string }} {{ 'x' | string }} {{ 1.0 | string }}",
    "{{ '%s is %d, %.2f' | format('a', 3, 1.5) }} {{ 'x{}y{}'.format(1, 'z') }}",
    "{{ 1.0 | tojson }} {{ 1e20 | tojson }} {{ 1e-7 | tojson }} {{ [1, 2.50, {'a': (1, 2)}] | tojson }} {{ 'é<>&\\n\"' | tojson }} {{ none | tojson }}",
    "{{ {'b': 1, 'a': [1, {}], 'c': []} | tojson(indent=2) }} {{ {'b': 1} | tojson(separators=(',', ':')) }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem is defined }};{% else %}none{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ m.role }}{% if loop.index == 2 %}{% break %}{% endif %},{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }},{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a ~ b }};{% endfor %}{% for (a, b) in [[5, 6]] %}{{ a + b }}{% endfor %}{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}",
    "{% for k, v in {'x': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'x': 1} | items %}{{ k }}{{ v }}{% endfor %}{{ {'x': 1}.get('y', 'z') }}{{ {'x': 1}.keys() | list }}{{ {'x': 1}.values() | list }}",
    "{% set a, b = 1, 'x' %}{{ a ~ b }}{% set c %}  block {{ a }} {% endset %}[{{ c }}]{% set (d, e) = (1, 2) %}{{ d + e }}",
    "{% macro f(x, y=[1, 2], z='q') %}{{ x ~ y ~ z }}{% endmacro %}{{ f('a') }}{{ f(1, z=none) }}{% macro g() %}<{{ caller() }}>{% endmacro %}{% call g() %}in{% endcall %}{% macro h() %}{{ caller('u', 'w') }}{% endmacro %}{% call(a, b) h() %}{{ a ~ b }}{% endcall %}",
    "{{ 'abc'[::-1] }} {{ 'abcdef'[1:4] }} {{ [1, 2, 3][::2] }} {{ messages[-1].role }} {{ messages[::-1][0].role }} {{ (messages | last).role }} {{ (messages | first).role }}",
    "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b'.split(',') }}|{{ 'a b  c'.split() }}|{{ 'abc'.find('c') }}|{{ 'a-b'.replace('-', '+') }}|{{ 'ab'.upper() }}|{{ 'a\nb'.splitlines() }}|{{ 'tEst'.capitalize() }}|{{ 'a b'.title() }}|{{ 'aXa'.count('a') }}|{{ 'a=b=c'.split('=', 1) }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}",
    "{{ messages | map(attribute='role') | list }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join('/') }} {{ [3, 1, 2] | sort }} {{ [1, 1, 2] | unique | list }} {{ [0, 1, none] | select | list }} {{ ['a', 'b'] | reject('equalto', 'a') | list }}",
    "{{ missing | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }} {{ 'x' if missing }} {{ missing is defined }} {{ missing is undefined }} {{ messages is iterable }} {{ messages[0] is mapping }} {{ messages is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ 'a' is iterable }} {{ (1, 2) is sequence }} {{ 3 is divisibleby(3) }} {{ 3 is odd }} {{ true is boolean }} {{ 1 is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ 1 is eq 1 }} {{ 2 is gt(1) }} {{ 'a' in ['a'] }} {{ 'a' is in ['a'] }}",
    "  {% if true %}\n    x\n  {% endif %}\ny\n{%- if true %}\n  z\n{%- endif %}\n{# comment #}\nend\n",
    "a\n    {% set x = 1 %}\n    {{ x }}\n\t{%+ if x %}\n q {% endif +%}\n w\n",
    "{{ 'a' * 3 }} {{ [1] * 2 + [2] }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ 2 ** 3 }} {{ 4 / 2 }} {{ (1.5 + 1.5) | int }} {{ '3' | int + 1 }} {{ 2.7 | round }} {{ 3 | float }} {{ -3 | abs }}",
    "{{ 1 < 2 < 3 }} {{ 'a' != 'b' and not false or x }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }} {{ none == false }} {{ 1 == 1.0 }} {{ 'b' > 'a' }}",
    "{% set ns = namespace(a=1, b=[]) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b + [m.role] %}{% endfor %}{{ ns.a }}{{ ns.b }}{% if ns.b | length > 1 and ns.b[0] == ns.b[-1] %}same{% endif %}",
    "{% filter upper %}abc{% endfilter %} {{ 'a\nb' | indent(2) }} {{ 'a\nb' | indent(2, true) }} {{ 'hello world' | title }} {{ 'x' | upper | lower }} {{ 'a&b' | e }} {{ 'a' | safe }} {{ ' a ' | trim }} {{ 'abcabc' | replace('a', 'x', 1) }} {{ [1, 2, 3] | sum }} {{ [1, 2] | max }} {{ 'abc' | length }} {{ 'cba' | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ 'abc' | reverse }} {{ 'abc' | first }}",
    "{{ range(3) | list }} {{ range(1, 7, 2) | list }} {% for i in range(2) %}{{ i }}{% endfor %} {{ dict(a=1) }} {{ dict(a=1).a }} {% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
    "{% with a = 1, b = [2] %}{{ a ~ b }}{% endwith %} {{ 'a' 'b' }} {{ \"\\u00e9\\x41\" }} {{ 'it\\'s' }} {{ 0x1f if false else 1_000 }}",
    "{{ tools[0].function.parameters.required }} {{ tools[0]['function']['name'] }} {{ tools[0].function.parameters.properties | length }} {{ tools | length }}{% for t in tools %}{{ t }}{% endfor %}",
    "{% if messages[0].content is string and messages[0].content is not mapping %}{{ messages[0].content }}{% endif %}{{ messages[0].name | default('anon') }}{{ messages[5] is defined }}{{ messages[0].get('content') }}{{ 'role' in messages[0] }}",
    "{% for m in messages recursive %}{{ m.role }}{% endfor %}{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}",
    "{% set x = {'a': [1, 2], 'b': {'c': (3, 4)}} %}{{ x.a[0] ~ x['b'].c[1] }}{{ x.b.c }}{{ x | length }}{% for k in x %}{{ k }}{% endfor %}",
]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where <é> it's"},
                    "days": {"type": "integer", "default": 2, "minimum": 0.5},
                    "units": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
                    "place": {
                        "type": "object",
                        "properties": {"x": {"type": ["number", "null"]}, "y": {"type": "boolean"}},
                        "required": ["x"],
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Tells the time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
CALL = {
    "id": "abcdefghi",
    "type": "function",
    "function": {
        "name": "weather",
        "arguments": {"city": "Zürich", "days": 3, "deep": [1.5, None, True]},
    },
}
SYSTEM = {"role": "system", "content": " Be brief. /no_think"}
USER = {"role": "user", "content": " What's the weather? \n"}
ASSISTANT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSunny, 20 °C."}
CONVERSATIONS = {
    "one": ([USER], [], True),
    "system": ([SYSTEM, USER, ASSISTANT, {"role": "user", "content": "And tomorrow?"}], [], True),
    "ended": ([SYSTEM, USER, ASSISTANT], [], False),
    "odd": ([ASSISTANT, USER, USER], [], True),
    "tools": ([SYSTEM, USER], TOOLS, True),
    "call": (
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": '{"t": 20}', "tool_call_id": "abcdefghi"},
        ],
        TOOLS,
        True,
    ),
    "answered": (
        [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, CALL]},
            {"role": "tool", "content": "20", "tool_call_id": "abcdefghi"},
            {"role": "tool", "content": "21", "tool_call_id": "abcdefghi"},
            ASSISTANT,
            USER,
        ],
        TOOLS[:1],
        True,
    ),
    "arguments": (
        [
            SYSTEM,
            {**USER, "name": "Ada"},
            {
                "role": "assistant",
                "content": "Rain.",
                "reasoning_content": "\nIt is <wet>.\n",
                "name": "bot",
            },
            USER,
        ],
        [],
        True,
        {
            "enable_thinking": False,
            "date_string": "1 Jan 2025",
            "reasoning_effort": "high",
            "builtin_tools": ["code_interpreter", "browser"],
            "custom_tools": TOOLS[1:],
            "tools_in_user_message": False,
            "documents": [
                {"title": "Weather <é>", "text": "It's wet.", "n": 1.5},
                {"title": "Other", "text": "", "n": None},
            ],
            "bos_token": "<other>",
        },
    ),
    "thinking": (
        [
            USER,
            {**ASSISTANT, "reasoning_content": "No."},
            USER,
            {"role": "assistant", "content": "\nYes.", "reasoning_content": "Now."},
        ],
        TOOLS,
        False,
        {"enable_thinking": True, "tools_in_user_message": False, "reasoning_effort": None},
    ),
}
# Templates with arguments besides messages and functions.
ARGUMENT_PIECES = [
    "{% if documents %}{% for d in documents %}[{{ loop.index }}] {{ d['title'] ~ ': ' ~ d.text }} {{ d.n | tojson }} {% endfor %}{% endif %}{{ documents is defined }}",
    "{{ enable_thinking | default(true) }} {{ enable_thinking is false }} {{ not_there is defined }} {{ reasoning_effort | default('medium', true) }}",
    "{% set enable_thinking = enable_thinking if enable_thinking is defined else 7 %}{{ enable_thinking }}{{ bos_token }}{{ builtin_tools | tojson }}",
    "{% for m in messages %}{{ m.name | default('?') }} {{ m.get('reasoning_content', '-') | trim }} {{ 'name' in m }};{% endfor %}",
    "{% for key, value in documents[0].items() %}{{ key }}={{ value }}, {% endfor %}{{ documents }}",
]
MODELS = {
    "llama31": LLAMA31,
    "qwen3": QWEN3,
    "qwen25": QWEN25,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "phi": PHI,
    "phi4": PHI4,
    "deepseek": DEEPSEEK,
    "smollm": SMOLLM,
    "zephyr": ZEPHYR,
    "command": COMMAND,
    "harmony": HARMONY,
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def render(template: str, conversation: str) -> dict:
    messages, tools, add_generation_prompt, *rest = CONVERSATIONS[conversation]
    arguments = {"documents": None, **TOKENS, **(rest[0] if rest else {})}
    compiled = chat_template_utils._compile_jinja_template(template)
    try:
        text = compiled.render(
            messages=messages,
            tools=tools or None,
            add_generation_prompt=add_generation_prompt,
            **arguments,
        )
    except Exception as error:  # noqa: BLE001
        return {"conversation": conversation, "refused": str(error)}
    return {"conversation": conversation, "text": text}


def main() -> None:
    templates = [
        {
            "name": name,
            "template": template,
            "cases": [render(template, it) for it in CONVERSATIONS],
        }
        for name, template in MODELS.items()
    ]
    templates += [
        {"name": f"piece {at}", "template": template, "cases": [render(template, "tools")]}
        for at, template in enumerate(PIECES)
    ]
    templates += [
        {
            "name": f"argument piece {at}",
            "template": template,
            "cases": [render(template, it) for it in ("one", "arguments", "thinking")],
        }
        for at, template in enumerate(ARGUMENT_PIECES)
    ]
    conversations = {
        name: {
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": prompt,
            **({"arguments": rest[0]} if rest else {}),
        }
        for name, (messages, tools, prompt, *rest) in CONVERSATIONS.items()
    }
    whole = {"tokens": TOKENS, "conversations": conversations, "templates": templates}
    OUT.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


main()
